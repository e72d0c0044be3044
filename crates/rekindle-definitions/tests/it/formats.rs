//! The same in three formats.

use rekindle_definitions::{Definition, Format};

const YAML: &str = r#"
$schema: ./agent.schema.json
kind: agent
name: clerk
description: Answers letters.
model: {provider: openai, name: gpt-5, temperature: 0.5, price: {input: 1.25, output: 10}}
system: Be kind.
tools:
  - name: weather
    description: The weather in a city.
    parameters: {city: string, days: {type: integer, optional: true}}
    http: {url: "https://weather.example/${arguments.city}", headers: {X: "${secrets.token}"}}
    timeout: 30s
    retry: {attempts: 2}
    approval: {prompt: "Look?", approvals: 2}
secrets: {token: "@env:TOKEN"}
budgets: {iterations: 5, cost: 0.5, active_time: 10m}
checkpoints: {every: 3}
retention: {last: 5, tagged: [a, b], max_age: 7d}
reduction: {summarise: {keep_last: 10}}
"#;

const TOML: &str = r#"
"$schema" = "./agent.schema.json"
kind = "agent"
name = "clerk"
description = "Answers letters."
system = "Be kind."
checkpoints = { every = 3 }
reduction = { summarise = { keep_last = 10 } }
secrets.token = "@env:TOKEN"

[model]
provider = "openai"
name = "gpt-5"
temperature = 0.5
price = { input = 1.25, output = 10 }

[[tools]]
name = "weather"
description = "The weather in a city."
timeout = "30s"
retry.attempts = 2
parameters.city = "string"
parameters.days = { type = "integer", optional = true }
http.url = "https://weather.example/${arguments.city}"
http.headers.X = "${secrets.token}"
approval = { prompt = "Look?", approvals = 2 }

[budgets]
iterations = 5
cost = 0.5
active_time = "10m"

[retention]
last = 5
tagged = ["a", "b"]
max_age = "7d"
"#;

const JSON: &str = r#"{
  "$schema": "./agent.schema.json", "kind": "agent", "name": "clerk", "description": "Answers letters.",
  "model": {"provider": "openai", "name": "gpt-5", "temperature": 0.5, "price": {"input": 1.25, "output": 10}},
  "system": "Be kind.",
  "tools": [{
    "name": "weather", "description": "The weather in a city.",
    "parameters": {"city": "string", "days": {"type": "integer", "optional": true}},
    "http": {"url": "https://weather.example/${arguments.city}", "headers": {"X": "${secrets.token}"}},
    "timeout": "30s", "retry": {"attempts": 2}, "approval": {"prompt": "Look?", "approvals": 2}
  }],
  "secrets": {"token": "@env:TOKEN"},
  "budgets": {"iterations": 5, "cost": 0.5, "active_time": "10m"},
  "checkpoints": {"every": 3},
  "retention": {"last": 5, "tagged": ["a", "b"], "max_age": "7d"},
  "reduction": {"summarise": {"keep_last": 10}}
}"#;

#[test]
fn an_agent_is_the_same_in_every_format() {
    let yaml = Definition::parse("a.yaml", YAML, Format::Yaml).unwrap();
    assert_eq!(yaml, Definition::parse("a.toml", TOML, Format::Toml).unwrap());
    assert_eq!(yaml, Definition::parse("a.json", JSON, Format::Json).unwrap());
    assert_eq!((yaml.name(), yaml.description()), ("clerk", Some("Answers letters.")));
    let other = YAML.replace("30s", "31s");
    assert_ne!(yaml, Definition::parse("a.yaml", &other, Format::Yaml).unwrap());
}

#[test]
fn what_a_run_may_be_given_is_known() {
    let names = |text: &str| {
        let inputs = Definition::parse("f.yaml", text, Format::Yaml).unwrap().inputs();
        inputs.into_iter().map(|input| (input.name, input.required)).collect::<Vec<_>>()
    };
    assert_eq!(names("name: a\nmodel: openai/x\n"), [("text".into(), true)]);
    assert_eq!(names("name: p\nsteps: []\ncontext: {k: 1}\n"), [("query".into(), false), ("k".into(), false)]);
    let graph = "name: g\nentry: a\nnodes: []\ninputs: [topic, tone]\nmemory: {tone: calm, n: 0}\n";
    assert_eq!(names(graph), [("topic".into(), true), ("tone".into(), false), ("n".into(), false)]);
}
