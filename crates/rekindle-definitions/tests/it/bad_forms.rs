//! Files whose keys and values are not right: each fault with its place.

use crate::kit::{check, only, refused};

const AGENT: &str = "name: a\nmodel: openai/gpt-5\n";

fn refuse(rest: &str, line: usize, column: usize, message: &str, hint: &str) {
    check(&refused(&format!("{AGENT}{rest}")), (line, column), message, hint);
}

#[test]
fn unknown_keys_are_named_with_what_was_meant() {
    refuse("promt: hello\n", 3, 1, "unknown key `promt`", "the keys here are");
    refuse("sistem: hello\n", 3, 1, "unknown key `sistem`", "did you mean `system`?");
    refuse("budgets: {iteration: 3}\n", 3, 11, "unknown key `iteration`", "did you mean `iterations`?");
    refuse("tools:\n  - {name: t, comand: [x]}\n", 4, 15, "unknown key `comand`", "did you mean `command`?");
    refuse("tools:\n  - {name: t, timout: 3s}\n", 4, 15, "unknown key `timout`", "did you mean `timeout`?");
    refuse("mcp:\n  s: {comand: [x]}\n", 4, 7, "unknown key `comand`", "did you mean `command`?");
    refuse("steps: []\n", 2, 1, "unknown key `model`", "did you mean `models`?");
    let plan = "name: p\nsteps:\n  - {id: a, action: t}\n  - {id: b, acton: t}\n  - {id: c, depends: [a], action: t}\n";
    let faults = refused(plan);
    assert_eq!(faults.len(), 2, "{faults}");
    check(&faults, (4, 13), "unknown key `acton`", "did you mean `action`?");
    assert!(faults.to_string().contains("f.yaml:5:13: unknown key `depends`"), "{faults}");
}

#[test]
fn wrong_types_say_what_is_there() {
    refuse("system: [a]\n", 3, 9, "expected text, found a list", "");
    refuse("parallel: many\n", 3, 11, "expected a whole number, found the text \"many\"", "");
    refuse("tools: {}\n", 3, 8, "expected a list, found an object", "");
    refuse("grace: 10\n", 3, 8, "the number 10 has no unit", "write `10s`");
    refuse("grace: 10 weeks\n", 3, 8, "`10 weeks` is no duration", "`30s`");
    refuse("durability: always\n", 3, 13, "`always` is not known here", "`sync`, `async`, `exit`");
    refuse("checkpoints: sometimes\n", 3, 14, "`sometimes` is not known here", "`per_turn`");
    refuse("checkpoints: {every: 0}\n", 3, 14, "`every` must be at least 1", "");
    refuse("checkpoints: {smart: {slow: fast}}\n", 3, 29, "`fast` is no duration", "");
    refuse("checkpoints: 5\n", 3, 14, "expected `per_turn`", "");
    refuse("reduction: {keep: 5}\n", 3, 12, "`keep` is not known here", "did you mean `keep_last`?");
    refuse("budgets: {cost: -1}\n", 3, 17, "-1 is no amount of money", "");
    refuse("retention: {last: x}\n", 3, 19, "expected a whole number", "");
    refuse(
        "tools:\n  - {name: t, description: d, command: [x], approval: maybe}\n",
        4,
        55,
        "expected `true`, `false`",
        "",
    );
    refuse("kind: robot\n", 3, 7, "`robot` is not known here", "`agent`, `plan`, `graph`");
    check(&refused("model: openai/gpt-5\n"), (1, 1), "`name` is missing", "");
    check(&refused("- a\n"), (1, 1), "expected an object", "");
}

#[test]
fn tools_do_one_thing_with_what_suits_it() {
    let tool = |fields: &str| format!("tools:\n  - {{name: t, description: d, {fields}}}\n");
    refuse(&tool("timeout: 3s"), 4, 5, "the tool `t` does nothing", "`command`");
    refuse(&tool("command: [x], shell: y"), 4, 45, "has `command` and `shell`", "one thing");
    refuse(
        &tool("http: {url: 'http://x'}, stdin: arguments"),
        4,
        56,
        "`stdin` does not suit a tool with `http`",
        "`shell`",
    );
    refuse(&tool("question: {prompt: q}, retry: {attempts: 2}"), 4, 54, "`retry` does not suit", "`command`");
    refuse(&tool("command: []"), 4, 40, "it names no program", "");
    refuse(&tool("command: [x], parameters: {n: int}"), 4, 61, "there is no type `int`", "did you mean `integer`?");
    refuse("tools:\n  - {name: t, command: [x]}\n", 4, 5, "`description` is missing", "");
    let twice = "tools:\n  - {name: t, description: d, command: [x]}\n  - {name: t, description: d, shell: x}\n";
    refuse(twice, 5, 12, "there are two tools named `t`", "rename");
}

#[test]
fn mcp_servers_are_a_command_or_a_url() {
    refuse("mcp:\n  s: {}\n", 4, 3, "give a `command`", "");
    refuse("mcp:\n  s: {command: [x], url: 'http://x'}\n", 4, 21, "not both", "");
    refuse(
        "mcp:\n  s: {url: 'http://x', directory: d}\n",
        4,
        24,
        "`directory` does not suit a server with a `url`",
        "",
    );
    refuse(
        "mcp:\n  s: {url: 'http://x', policies: {'*': {in_doubt: perhaps}}}\n",
        4,
        51,
        "`perhaps` is not known",
        "`ask`",
    );
}

#[test]
fn graphs_in_files_have_no_functions() {
    let graph = |node: &str| refused(&format!("name: g\nentry: a\nnodes:\n  - {{id: a, {node}}}\n"));
    check(&graph("kind: function"), (4, 19), "no functions of a program", "kind `tool`");
    check(&graph("kind: router, choose: f"), (4, 35), "no functions that choose", "conditions");
    check(&graph("kind: router, merge: {k: {reducer: r}}"), (4, 38), "no reducers", "`append`");
}

#[test]
fn nodes_and_edges_name_what_is_wrong_in_them() {
    let graph = |nodes: &str, edges: &str| {
        refused(&format!(
            "name: g\nentry: a\nnodes:\n  - {{id: a, {nodes}}}\nedges:\n  - {{from: a, to: a, {edges}}}\n"
        ))
    };
    check(
        &graph("kind: agent, agent: w, promt: x, prompt: y", ""),
        (4, 36),
        "unknown key `promt`",
        "did you mean `prompt`?",
    );
    check(&graph("kind: loop", ""), (4, 19), "`loop` is not known here", "`router`");
    check(
        &graph("kind: router, max_visits: often", ""),
        (4, 39),
        "expected a whole number, found the text \"often\"",
        "",
    );
    check(&graph("kind: agent, agent: w", ""), (4, 5), "`prompt` is missing", "");
    check(
        &graph("kind: router", "when: {memory: x, atleast: 1}"),
        (6, 40),
        "unknown key `atleast`",
        "did you mean `at_least`?",
    );
    check(&graph("kind: router", "when: {all: [{memory: x}, 5]}"), (6, 48), "expected a condition", "");
    check(&graph("kind: router", "priority: high"), (6, 32), "expected a whole number", "");
}

#[test]
fn secrets_are_given_by_reference_and_never_repeated() {
    let cases = [
        ("model: {provider: openai, name: x, api_key: sk-12345}\n", 2),
        ("model: {provider: openai, name: x, api_key: 12345}\n", 2),
        ("model: {provider: openai, name: x, api_key: [sk-12345]}\n", 2),
        ("model: {provider: openai, name: x, headers: {Authorization: Bearer 12345}}\n", 2),
        ("model: openai/gpt-5\nsecrets: {token: '12345'}\n", 3),
        ("model: openai/gpt-5\nmcp: {s: {url: 'http://x', bearer: '12345'}}\n", 3),
        ("model: openai/gpt-5\nmcp: {s: {command: [x], secret_environment: {T: '12345'}}}\n", 3),
        ("model: openai/gpt-5\ntools: [{name: t, description: d, shell: x, secret_environment: {T: '12345'}}]\n", 3),
    ];
    for (rest, line) in cases {
        let faults = refused(&format!("name: a\n{rest}"));
        let fault = only(&faults);
        assert_eq!(fault.line, Some(line), "{faults}");
        assert!(fault.hint.as_deref().unwrap().contains("@env:VARIABLE"), "{faults}");
        let all = format!("{faults}{faults:?}{}{:?}", faults.excerpts(), rekindle::Error::from(faults.clone()));
        assert!(!all.contains("12345"), "{all}");
    }
    let http = "tools: [{name: t, description: d, http: {url: 'http://x', headers: {A: '${secrets.tokn}'}}}]\nsecrets: {token: '@env:T'}\n";
    refuse(http, 3, 72, "there is no secret `tokn`", "did you mean `token`?");
}

#[test]
fn faults_are_drawn_with_their_line() {
    let faults = refused("name: a\nmodel: openai/gpt-5\nsistem: hello\n");
    let expected = "error: unknown key `sistem`\n --> f.yaml:3:1\n  |\n3 | sistem: hello\n  | ^^^^^^\n  = hint: did you mean `system`?";
    assert_eq!(faults.excerpts(), expected);
    assert_eq!(faults.to_string(), "f.yaml:3:1: unknown key `sistem` (did you mean `system`?)");
    let error = rekindle::Error::from(faults);
    assert_eq!((error.code(), error.message()), ("RK0001", "f.yaml:3:1: unknown key `sistem`"));
    assert_eq!(error.next_step(), "did you mean `system`?");
}
