//! Drawings, good ones and strange ones.

use super::*;
use crate::executor::graph::{Condition, EdgeSpec, NodeSpec};

fn visited(node: &str, next: &[&str]) -> Visited {
    Visited {
        step: 0,
        node: node.into(),
        visit: 1,
        strand: None,
        next: next.iter().map(|next| (*next).into()).collect(),
        wrote: Vec::new(),
        output: None,
        error: None,
        duration_ms: 0,
    }
}

fn graph(entry: &str, nodes: Vec<NodeSpec>, edges: Vec<EdgeSpec>) -> GraphSpec {
    GraphSpec { name: "test".into(), entry: entry.into(), nodes, edges, ..GraphSpec::default() }
}

fn about(mut node: NodeSpec, description: &str) -> NodeSpec {
    node.description = description.into();
    node
}

/// One of everything.
fn report() -> GraphSpec {
    let score = || Condition::memory("score");
    let nodes = vec![
        about(NodeSpec::function("collect"), "Reads the request and what is known"),
        about(NodeSpec::router("split").fan_out("merge"), "Both at once"),
        about(NodeSpec::tool("search", "web"), "Searches the web for sources that say something new about it"),
        about(NodeSpec::graph("archive", "archive"), "Looks into the archive"),
        about(NodeSpec::function("merge"), "Puts the sources together"),
        about(NodeSpec::agent("draft", "writer", "go"), "Writes a draft"),
        about(NodeSpec::router("grade"), "How good is it?"),
        about(NodeSpec::question("ask", "Publish?"), "An editor decides"),
        about(NodeSpec::plan("publish", "publish"), "Publishes it everywhere"),
        about(NodeSpec::function("give_up"), "Says what went wrong"),
    ];
    let edges = vec![
        EdgeSpec::new("collect", "split"),
        EdgeSpec::new("split", "search"),
        EdgeSpec::new("split", "archive"),
        EdgeSpec::new("search", "merge"),
        EdgeSpec::new("archive", "merge"),
        EdgeSpec::new("merge", "draft"),
        EdgeSpec::new("draft", "grade"),
        EdgeSpec::new("draft", "draft").when(Condition::memory("missing").exists()),
        EdgeSpec::new("draft", "give_up").when(Condition::failed()),
        EdgeSpec::new("grade", "draft").when(score().less_than(0.8).and(Condition::memory("tries").at_most(3))),
        EdgeSpec::new("grade", "ask").when(score().at_least(0.8)),
        EdgeSpec::new("grade", "give_up").or_else(),
        EdgeSpec::new("ask", "publish").when(Condition::result().at("/ok").is(true)),
        EdgeSpec::new("ask", "collect").or_else(),
    ];
    graph("collect", nodes, edges)
}

fn walked() -> Vec<Visited> {
    let mut path = vec![
        visited("collect", &["split"]),
        visited("split", &["search", "archive"]),
        visited("search", &["merge"]),
        visited("archive", &["merge"]),
        visited("merge", &["draft"]),
    ];
    for _ in 0..2 {
        path.extend([visited("draft", &["grade"]), visited("grade", &["draft"])]);
    }
    path.extend([visited("draft", &["grade"]), visited("grade", &["ask"])]);
    path
}

fn check_xml(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        check_text(text);
        let end = tag.find('>').expect("a tag that ends");
        let (inside, after) = (&tag[1..end], &tag[end + 1..]);
        let name = inside.trim_start_matches('/').split([' ', '/']).next().unwrap();
        assert!(KNOWN.contains(&name), "<{inside}>");
        assert!(!inside.contains('<') && inside.matches('"').count() % 2 == 0, "<{inside}>");
        if inside.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !inside.ends_with('/') {
            open.push(name);
        }
        rest = after;
    }
    assert_eq!(rest.trim(), "");
    assert!(open.is_empty(), "{open:?}");
    for number in ["NaN", "inf"] {
        assert!(!svg.contains(&format!("\"{number}")) && !svg.contains(&format!(" {number}")), "{number}");
    }
}

/// All elements there are: none that runs or loads anything.
const KNOWN: [&str; 11] = ["svg", "title", "desc", "style", "defs", "marker", "path", "rect", "g", "circle", "text"];

fn check_text(text: &str) {
    assert!(!text.contains('>') && text.chars().all(|one| one == '\n' || !one.is_control()), "{text}");
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
        assert!(known.iter().any(|known| text[at..].starts_with(known)), "{text}");
    }
}

/// Every line is one of ours: a word of the graph can stand only in quotes, escaped.
fn check_mermaid(chart: &str) {
    for line in chart.lines().skip(1) {
        let mut outside = line.split('"');
        let first = outside.next().unwrap().trim_start();
        let known = ["accTitle: ", "start", "finish", "n", "linkStyle ", "classDef ", "class "];
        assert!(known.iter().any(|known| first.starts_with(known)), "{line}");
        assert_eq!(line.matches('"').count() % 2, 0, "{line}");
        for label in line.split('"').skip(1).step_by(2) {
            let label = label.replace("<br/>", "");
            assert!(
                !label.contains(['<', '>', '`', '[', ']', '{', '}', '(', ')', '|', '\\', '%', '&', '*', '@']),
                "{line}"
            );
        }
    }
}

fn check(graph: &GraphSpec, trail: &Trail<'_>) -> (String, String) {
    let (svg, chart) = (graph.to_svg(trail), graph.to_mermaid(trail));
    check_xml(&svg);
    check_mermaid(&chart);
    (svg, chart)
}

fn essay() -> GraphSpec {
    let nodes = vec![
        about(NodeSpec::agent("draft", "writer", "go"), "Writes."),
        NodeSpec::router("grade"),
        NodeSpec::question("ask", "Well?"),
        NodeSpec::tool("sorry", "mail"),
    ];
    let edges = vec![
        EdgeSpec::new("draft", "grade"),
        EdgeSpec::new("draft", "sorry").when(Condition::failed()),
        EdgeSpec::new("grade", "draft").when(Condition::memory("score").less_than(0.8)),
        EdgeSpec::new("grade", "ask").or_else(),
    ];
    graph("draft", nodes, edges)
}

#[test]
fn a_graph_as_mermaid() {
    let expected = r##"flowchart TD
    accTitle: test
    start(("start"))
    n0(["draft<br/>Writes."])
    n1{"grade"}
    n2{{"ask"}}
    n3["sorry"]
    finish((("end")))
    start --> n0
    n0 --> n1
    n0 -->|"✗ failed"| n3
    n1 -->|"score #60; 0.8"| n0
    n1 -.->|"else"| n2
    n2 --> finish
    n3 --> finish
    linkStyle 2 stroke:#dc2626,stroke-dasharray:6 4
    classDef mark fill:#64748b,stroke:#64748b,color:#ffffff
    class start,finish mark
"##;
    assert_eq!(check(&essay(), &Trail::default()).1, expected);
}

#[test]
fn a_path_as_mermaid() {
    let path = [visited("draft", &["grade"]), visited("grade", &["draft"]), visited("draft", &["grade"])];
    let trail = Trail::of(&path).current(["grade"]).failed(["sorry"]);
    let expected = r##"flowchart TD
    accTitle: test
    start(("start"))
    n0(["draft ×2<br/>Writes."])
    n1{"grade"}
    n2{{"ask"}}
    n3["sorry"]
    finish((("end")))
    start --> n0
    n0 -->|"×2"| n1
    n0 -->|"✗ failed"| n3
    n1 -->|"score #60; 0.8"| n0
    n1 -.->|"else"| n2
    n2 --> finish
    n3 --> finish
    linkStyle 0,1,3 stroke:#2563eb,stroke-width:4px
    linkStyle 2 stroke:#dc2626,stroke-dasharray:6 4
    classDef mark fill:#64748b,stroke:#64748b,color:#ffffff
    class start,finish mark
    classDef visited fill:#dbeafe,stroke:#2563eb,color:#0f172a
    class n0 visited
    classDef current fill:#fef3c7,stroke:#d97706,color:#0f172a,stroke-width:4px
    class n1 current
    classDef failed fill:#fee2e2,stroke:#dc2626,color:#0f172a,stroke-width:3px
    class n3 failed
"##;
    assert_eq!(check(&essay(), &trail).1, expected);
}

#[test]
fn svg_shows_the_path_only_if_there_is_one() {
    let (plain, _) = check(&report(), &Trail::default());
    let path = walked();
    let (trail, _) = check(&report(), &Trail::of(&path).current(["ask"]).failed(["archive"]));
    for mark in [r#"class="rk-legend""#, "rk-node rk-visited", "rk-node rk-current", "rk-line rk-taken", ">×3<"] {
        assert!(!plain.contains(mark) && trail.contains(mark), "{mark}");
    }
    assert!(trail.contains("rk-node rk-visited rk-failed"));
    assert!(trail.contains("Current: ask."));
    assert!(plain.contains(r#"role="img""#) && plain.contains("<title>test</title>"));
    assert_eq!(plain.matches(r#"class="rk-bar""#).count(), 2);
}

#[test]
fn edges_between_the_same_nodes_are_one_arrow_each_for_success_and_failure() {
    let edges = vec![
        EdgeSpec::new("a", "b").when(Condition::memory("x")),
        EdgeSpec::new("a", "b").when(Condition::failed()),
        EdgeSpec::new("a", "b").or_else(),
        EdgeSpec::new("a", "a").when(Condition::failed().negate()),
    ];
    let graph = graph("a", vec![NodeSpec::function("a"), NodeSpec::function("b")], edges);
    let failed = Visited { error: Some("no".into()), ..visited("a", &["b"]) };
    let path = [failed.clone(), failed, visited("a", &["b"])];
    let (_, chart) = check(&graph, &Trail::of(&path));
    assert!(chart.contains(r#"n0 -->|"x or else"| n1"#), "{chart}");
    assert!(chart.contains(r#"n0 -->|"✗ failed ×2"| n1"#), "{chart}");
    assert!(chart.contains(r#"n0 -->|"not failed"| n0"#), "{chart}");
    assert!(chart.contains("linkStyle 0,1 stroke:#2563eb"), "{chart}");
}

const HOSTILE: [&str; 14] = [
    r#""];click n0 call alert()"#,
    "<script>alert(1)</script>",
    "</title></svg><img src=x onerror=alert(1)>",
    "a\nb --> c\r\n%%{init: {}}%%",
    "`**bold** _it_ [x](javascript:alert(1))`",
    "#quot; #lt; &lt; &amp; ]]> <![CDATA[",
    "1. one\n- two * three",
    "style n0:x#35; fill:url(http://x.y)",
    "ﬂ°°60¶ß www.example.com a@b.cc $$x^2$$ fa:fa-car",
    "\u{0}\u{1}\u{8}\u{1b}[31m\u{7f}\u{9b}\u{fffe}\u{ffff}\u{202e}evil",
    "👩\u{200d}🚀 漢字 e\u{301}",
    "end",
    "|pipes| {{braces}} ((rounds)) \\ ~ ^ = ; ' $",
    "",
];

#[test]
fn hostile_text_is_only_text() {
    for one in HOSTILE {
        for other in HOSTILE {
            let first = about(NodeSpec::router(one).fan_out(other), other);
            let nodes = vec![first, about(NodeSpec::question(other, one), &one.repeat(40))];
            let edges = vec![
                EdgeSpec::new(one, other).when(Condition::memory(other).at(one).is(one)),
                EdgeSpec::new(other, one).when(Condition::failed().and(Condition::memory(one))),
                EdgeSpec::new(one, one).or_else(),
            ];
            let mut graph = graph(one, nodes, edges);
            graph.name = other.into();
            graph.description = one.into();
            let path = [visited(one, &[other, one]), visited(other, &[one])];
            let (svg, chart) = check(&graph, &Trail::of(&path).current([other]).failed([one]));
            assert!(!svg.contains("<script") && !svg.contains("<img") && !svg.contains("<!["), "{svg}");
            assert!(!chart.contains("click n0 call alert()") && !chart.contains("%%"), "{chart}");
        }
    }
}

#[test]
fn what_names_no_node_is_left_out() {
    let edges = vec![EdgeSpec::new("a", "gone"), EdgeSpec::new("gone", "a"), EdgeSpec::new("x", "y")];
    let mut graph = graph("nowhere", vec![NodeSpec::function("a").fan_out("gone")], edges);
    let path = [visited("gone", &["a"]), visited("a", &["gone"]), visited("", &[])];
    let (_, chart) = check(&graph, &Trail::of(&path).current(["gone"]).failed(["x"]));
    assert!(!chart.contains("-->") && chart.contains("class n0 visited"), "{chart}");
    graph.nodes.clear();
    check(&graph, &Trail::of(&path));
    check(&GraphSpec::default(), &Trail::default());
}

#[test]
fn nodes_of_the_same_name_are_all_drawn() {
    let nodes = vec![NodeSpec::function("a"), NodeSpec::tool("a", "t"), NodeSpec::router("b")];
    let (svg, chart) = check(&graph("a", nodes, vec![EdgeSpec::new("a", "b")]), &Trail::default());
    assert!(chart.contains(r#"n1["a"]"#) && chart.contains("n0 --> n2"), "{chart}");
    assert_eq!(svg.matches(r#"class="rk-node""#).count(), 3);
}

/// `nodes` in a chain, with edges that jump forth and back.
fn large(nodes: usize, edges: usize) -> GraphSpec {
    let id = |number: usize| format!("node-{}", number % nodes);
    let chain = (1..nodes).map(|to| EdgeSpec::new(id(to - 1), id(to)));
    let jumps = (0..edges - nodes)
        .map(|at| EdgeSpec::new(id(at * 7919), id(at * 104_729 + at / 3)).when(Condition::memory("k")));
    let all = (0..nodes).map(|number| about(NodeSpec::function(id(number)), &"word ".repeat(40)));
    graph("node-0", all.collect(), chain.chain(jumps).collect())
}

#[test]
fn a_large_graph_is_drawn() {
    let graph = large(2000, 10_000);
    let path: Vec<Visited> =
        (1..2000).map(|at| visited(&format!("node-{}", at - 1), &[&format!("node-{at}")])).collect();
    let (svg, chart) = check(&graph, &Trail::of(&path));
    assert_eq!(svg.matches(r#"class="rk-node rk-visited""#).count(), 1999);
    assert!(chart.lines().count() > 5000);
}
