//! Files that run: agents, plans and graphs with scripted models and commands.

use rekindle::operations::{Answer, answer};
use rekindle::{Engine, Json, ResumeOptions, RunOutcome, Session};
use rekindle_definitions::{Built, Definition, Format, Kind, RunInput};
use serde_json::json;

use crate::kit::{Files, build, environment};

async fn built(text: &str) -> Built {
    build(Definition::parse("f.yaml", text, Format::Yaml).unwrap()).await.unwrap()
}

async fn session() -> Session {
    Engine::memory().unwrap().create("s").await.unwrap()
}

fn me() -> ResumeOptions {
    ResumeOptions::new("maria")
}

#[tokio::test]
async fn an_agent_runs_with_commands_and_files_on_sqlite() {
    let files = Files::new(&[
        (
            "agent.yaml",
            "
name: clerk
model: scripted/script.yaml
system_file: system.txt
files: {root: ./data, access: write, create: true}
tools:
  - name: greet
    description: Greets.
    parameters: {who: string}
    command: [printf, 'hello %s', '${arguments.who}']
    output: text
    writes: false
  - name: shout
    description: Shouts.
    parameters: {who: string}
    shell: 'echo \"{\\\"said\\\": \\\"$REKINDLE_ARG_WHO!\\\"}\"'
    output: json
    environment: {A: b}
groups:
  - {name: loud, description: Loud tools., tools: [shout]}
budgets: {iterations: 9}
checkpoints: per_iteration
durability: sync
",
        ),
        (
            "script.yaml",
            "
name: demo
turns:
  - expect: {system_contains: kind, tools: [greet, loud, read_file, list_files, write_file, edit_file]}
    calls: [{name: greet, arguments: {who: Ann}}, {name: loud}]
  - expect: {last_contains: shout}
    calls: [{name: shout, arguments: {who: Bob}}, {name: write_file, arguments: {path: a.txt, content: x}}]
  - text: done
",
        ),
        ("system.txt", "Be kind."),
    ]);
    let definition = Definition::load(files.path("agent.yaml")).unwrap();
    let built = build(definition).await.unwrap();
    assert_eq!((built.kind(), built.name()), (Kind::Agent, "clerk"));
    assert_eq!(built.model_names(), ["scripted/demo"]);
    let engine = Engine::open(&format!("sqlite:{}", files.path("s.db").display())).unwrap();
    let session = engine.create("s").await.unwrap();
    let report = built.start(&session, RunInput::text("go"), me()).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "done", "{report:?}");
    let state = engine.journal().load(session.key(), None).await.unwrap().state;
    let said = format!("{:?}", rekindle::Agent::messages(&state).unwrap());
    assert!(said.contains("hello Ann") && said.contains("Bob!"), "{said}");
    assert_eq!(std::fs::read_to_string(files.path("data/a.txt")).unwrap(), "x");
    assert!(files.root().join("data").is_dir());
}

#[tokio::test]
async fn the_last_word_on_options_is_the_callers() {
    let text = "name: a\nmodel: ollama/x\ngrace: 5s\nbudgets: {iterations: 3}\n";
    let definition = Definition::parse("f.yaml", text, Format::Yaml).unwrap();
    let defaults = serde_json::from_value(json!({"grace": "9s", "pending_writes": false, "budgets": {"tokens": 7}}));
    let builder = definition.builder().defaults(defaults.unwrap());
    let built = builder.adjust(|options| options.partial_bytes = 1).build().await.unwrap();
    let options = built.options();
    assert_eq!((options.grace.as_secs(), options.pending_writes, options.partial_bytes), (5, false, 1));
    let limits = [rekindle::Budget::Iterations, rekindle::Budget::Tokens].map(|budget| options.budgets.limit(budget));
    assert_eq!(limits, [Some(3), Some(7)]);
}

const PLAN: &str = "
name: report
query: what?
context: {n: 2}
tools:
  - name: double
    description: Doubles.
    parameters: {n: integer}
    shell: 'echo $((REKINDLE_ARG_N * 2))'
    output: json
    writes: false
agents:
  writer:
    description: Writes.
    model: {provider: scripted, name: w, script: {turns: [{expect: {last_contains: '8'}, text: eight}]}}
plans:
  inner:
    description: Doubles once more.
    tools: [{name: twice, description: d, parameters: {n: integer}, shell: 'echo $((REKINDLE_ARG_N * 2))', output: json}]
    steps: [{id: d, action: twice, parameters: {n: '${context.n}'}}]
steps:
  - {id: one, action: double, parameters: {n: '${context.n}'}}
  - {id: two, action: inner, parameters: {context: {n: '${steps.one.output}'}}, dependencies: [one]}
  - {id: say, action: writer, parameters: {task: 'say ${steps.two.output.d}'}, dependencies: [two]}
";

#[tokio::test]
async fn a_plan_runs_with_an_agent_and_a_plan_as_steps() {
    let built = built(PLAN).await;
    let session = session().await;
    let report = built.start(&session, RunInput::default(), me()).await.unwrap().report().await.unwrap();
    let result = built.as_plan().unwrap().result(&session, report).await.unwrap();
    assert!(result.success, "{result:?}");
    assert_eq!(result.state.output("say").unwrap().as_str(), "\"eight\"");
    assert_eq!(built.model_names(), ["scripted/w"]);
}

const GRAPH: &str = "
name: review
entry: draft
inputs: [topic]
memory: {tries: 0}
tools:
  - {name: bump, description: d, parameters: {n: integer}, shell: 'echo $((REKINDLE_ARG_N + 1))', output: json, writes: false}
agents:
  author:
    model: {provider: scripted, name: w, script: {repeat_last: true, turns: [{text: a poem}]}}
nodes:
  - {id: draft, kind: agent, agent: author, prompt: 'Write about ${memory.topic}.', reads: [topic], writes: [text]}
  - {id: count, kind: tool, tool: bump, arguments: {n: '${memory.tries}'}, reads: [tries], writes: [tries]}
  - {id: ask, kind: wait, prompt: 'Is ${memory.text} good?', reads: [text], writes: [verdict]}
edges:
  - {from: draft, to: count}
  - {from: count, to: draft, when: {memory: tries, less_than: 2}}
  - {from: count, to: ask, default: true}
checkpoints: {on_edge: true}
";

#[tokio::test]
async fn a_graph_runs_waits_and_goes_on() {
    let built = built(GRAPH).await;
    assert!(built.options().checkpoint_config.as_ref().unwrap().on_edge);
    let session = session().await;
    let report = built.start(&session, RunInput::text("rain"), me()).await.unwrap().report().await.unwrap();
    assert_eq!((report.outcome, report.waits[0].prompt.as_str()), (RunOutcome::Waiting, "Is a poem good?"));
    let given = Answer::value(report.waits[0].wait.clone(), Json::from("yes"), "maria");
    answer(session.engine(), session.key(), &given).await.unwrap();
    let report = built.resume(&session, me()).await.unwrap().report().await.unwrap();
    let result = built.as_graph().unwrap().result(&session, report).await.unwrap();
    assert_eq!(result.get::<String>("verdict").unwrap().as_deref(), Some("yes"));
    assert_eq!(result.state.visits["draft"], 2);
}

#[tokio::test]
async fn inputs_that_do_not_fit_say_what_does() {
    let graph = built(&GRAPH.replace("inputs: [topic]", "inputs: [topic, tone]")).await;
    let session = session().await;
    let error = graph.start(&session, RunInput::text("rain"), me()).await.unwrap_err();
    assert!(error.next_step().contains("`topic`, `tone`"), "{error:?}");
    assert!(graph.start(&session, RunInput::text("rain").with("tone", "calm"), me()).await.is_ok());
    let agent = built("name: a\nmodel: ollama/x\n").await;
    for input in [RunInput::default(), RunInput::text("x").with("k", 1)] {
        assert_eq!(agent.start(&session, input, me()).await.unwrap_err().code(), "RK0001");
    }
}

#[tokio::test]
async fn a_question_waits_for_its_answer() {
    let text = "
name: a
model: {provider: scripted, name: s, script: {turns: [
  {calls: [{name: ask, arguments: {city: Oslo}}]},
  {expect: {last_contains: tomorrow}, text: thanks}]}}
tools:
  - name: ask
    description: Asks the user.
    parameters: {city: string}
    question: {prompt: 'When to ${arguments.city}?', schema: {type: string}, expires_after: 2d}
";
    let built = built(text).await;
    let session = session().await;
    let report = built.start(&session, RunInput::text("go"), me()).await.unwrap().report().await.unwrap();
    assert_eq!((report.outcome, report.waits[0].prompt.as_str()), (RunOutcome::Waiting, "When to Oslo?"));
    let wait = report.waits[0].wait.clone();
    let wrong = Answer::value(wait.clone(), Json::from(json!(5)), "maria");
    assert!(answer(session.engine(), session.key(), &wrong).await.is_err());
    let right = Answer::value(wait, Json::from("tomorrow"), "maria");
    answer(session.engine(), session.key(), &right).await.unwrap();
    let report = built.resume(&session, me()).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "thanks", "{report:?}");
}

#[tokio::test]
async fn an_agent_calls_another_from_a_file() {
    let files = Files::new(&[
        (
            "top.toml",
            "
name = 'top'
[model]
provider = 'scripted'
name = 't'
[[model.script.turns]]
calls = [{ name = 'helper', arguments = { task = 'add' } }]
[[model.script.turns]]
expect = { last_contains = 'forty-two' }
text = 'it is 42'
[[tools]]
name = 'helper'
agent = 'sub/helper.json'
approval = false
risky = true
",
        ),
        (
            "sub/helper.json",
            r#"{"name": "other", "description": "Helps.", "model": {"provider": "scripted", "script": "script.json"}}"#,
        ),
        ("sub/script.json", r#"{"name": "h", "turns": [{"text": "forty-two"}]}"#),
    ]);
    let built = build(Definition::load(files.path("top.toml")).unwrap()).await.unwrap();
    assert_eq!(built.model_names(), ["scripted/h", "scripted/t"]);
    let session = session().await;
    let report = built.start(&session, RunInput::text("go"), me()).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "it is 42", "{report:?}");
}

#[derive(Debug)]
struct Fixed;

impl rekindle::SecretSource for Fixed {
    fn resolve(&self, reference: &rekindle::SecretRef) -> rekindle::Result<rekindle::Secret> {
        Ok(rekindle::Secret::new(format!("value-of-{}", reference.rest())))
    }
}

#[tokio::test]
async fn secrets_of_a_file_reach_its_tools_and_not_the_journal() {
    let text = "
name: a
model: {provider: scripted, name: s, script: {turns: [{calls: [{name: show}]}, {text: done}]}}
secrets: {token: '@env:TOKEN'}
tools:
  - name: show
    description: Shows how long its secrets are.
    shell: 'printf \"%s %s %s\" \"$ONE\" ${#ONE} ${#TWO}'
    output: text
    writes: false
    secret_environment: {ONE: token, TWO: '@env:OTHER'}
";
    let definition = Definition::parse("f.yaml", text, Format::Yaml).unwrap();
    let built = definition.builder().environment(environment()).build().await.unwrap();
    let names: Vec<&str> = built.secrets().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["env_OTHER", "token"]);
    let session = Engine::memory().unwrap().with_secrets(Fixed).create("s").await.unwrap();
    let report = built.start(&session, RunInput::text("go"), me()).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "done", "{report:?}");
    let state = session.engine().journal().load(session.key(), None).await.unwrap().state;
    let said = format!("{:?}", rekindle::Agent::messages(&state).unwrap());
    assert!(said.contains("[secret token] 14 14"), "{said}");
    assert!(!said.contains("value-of-TOKEN"));
}

#[tokio::test]
async fn one_name_is_one_secret_in_all_files() {
    let files = Files::new(&[
        (
            "a.yaml",
            "name: a\nmodel: ollama/x\nsecrets: {t: '@env:A'}\ntools: [{name: b, description: d, agent: b.yaml}]\n",
        ),
        ("b.yaml", "name: b\nmodel: ollama/x\nsecrets:\n  t: '@env:B'\n"),
    ]);
    let definition = Definition::load(files.path("a.yaml")).unwrap();
    let faults = build(definition.clone()).await.unwrap_err();
    assert!(faults.to_string().contains("b.yaml:4:3: `t` is another secret"), "{faults}");
    let built = definition.builder().secret("t", "@env:C".parse().unwrap()).build().await.unwrap();
    assert_eq!(built.secrets(), [("t".to_owned(), "@env:C".parse().unwrap())]);
}

#[tokio::test]
async fn a_command_that_writes_is_checked_if_it_can_be() {
    // What is in doubt is part of the fingerprint, so a definition that says it differently differs.
    let print = async |policy: &str| {
        let text = format!(
            "name: a\nmodel: ollama/x\ntools: [{{name: t, description: d, shell: x, check_command: [ls]{policy}}}]\n"
        );
        format!("{:?}", built(&text).await.executor().fingerprint())
    };
    assert_eq!(print("").await, print(", writes: true").await);
    assert_eq!(print("").await, print(", in_doubt: check").await);
    assert_ne!(print("").await, print(", in_doubt: ask").await);
    assert_ne!(print("").await, print(", writes: false").await);
}

#[tokio::test]
async fn what_a_tool_does_is_part_of_the_fingerprint() {
    let print = async |does: &str| {
        let script = "{provider: scripted, script: {name: m, turns: [{text: hi}]}}";
        let text = format!("name: a\nmodel: {script}\ntools:\n  - {{name: t, description: T., {does}}}\n");
        built(&text).await.executor().fingerprint()
    };
    let first = print("shell: echo one").await;
    assert_eq!(print("shell: echo one, timeout: 5s").await, first);
    for changed in ["shell: echo two", "command: [echo, one]", "shell: echo one, output: text"] {
        assert_ne!(print(changed).await, first, "{changed}");
    }
    assert_eq!(print("shell: echo one, version: v1").await, print("shell: echo two, version: v1").await);
}
