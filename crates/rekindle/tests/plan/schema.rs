//! Plans in files: their JSON Schema, and what is written comes back.

use std::time::Duration;

use rekindle::Plan;
use rekindle::plan::{PlanSpec, StepSpec};
use rekindle::tool::Retries;
use serde_json::{Value, json};

fn spec() -> PlanSpec {
    let retries =
        Retries { attempts: 4, first_pause: Duration::from_millis(250), longest_pause: Duration::from_secs(8) };
    let fetch = StepSpec::new("fetch", "download").with("url", "${context.url}").describe("Gets it.").retry(retries);
    let write = StepSpec::new("write", "write_file")
        .after(["fetch"])
        .with("text", "${steps.fetch.output.body}")
        .timeout(Duration::from_secs(30))
        .optional()
        .risky();
    PlanSpec {
        name: "report".into(),
        description: "Writes a report.".into(),
        query: "What is new?".into(),
        context: [("url".to_owned(), json!("https://example.org"))].into(),
        steps: vec![fetch, write],
        parallel: Some(3),
        fail_fast: true,
    }
}

fn validator() -> jsonschema::Validator {
    jsonschema::validator_for(&PlanSpec::schema()).unwrap()
}

#[test]
fn what_is_written_comes_back_and_fits_the_schema() {
    for spec in [spec(), PlanSpec { name: "empty".into(), ..PlanSpec::default() }] {
        let file = serde_json::to_value(&spec).unwrap();
        assert_eq!(serde_json::from_value::<PlanSpec>(file.clone()).unwrap(), spec);
        assert!(validator().is_valid(&file), "{:?}", validator().validate(&file).unwrap_err().to_string());
    }
    assert_eq!(Plan::from_spec(spec()).build().unwrap_err().code(), "RK0001", "it has no tools yet");
}

#[test]
fn the_file_says_only_what_is_not_usual() {
    let spec = PlanSpec { name: "p".into(), steps: vec![StepSpec::new("a", "echo")], ..PlanSpec::default() };
    assert_eq!(serde_json::to_value(&spec).unwrap(), json!({"name": "p", "steps": [{"id": "a", "action": "echo"}]}));
}

#[test]
fn durations_are_written_as_people_write_them() {
    let file = serde_json::to_value(spec()).unwrap();
    assert_eq!(file["steps"][1]["timeout"], "30s");
    assert_eq!(file["steps"][0]["retry"], json!({"attempts": 4, "first_pause": "250ms", "longest_pause": "8s"}));
}

#[test]
fn the_schema_is_one_and_refuses_what_the_reader_refuses() {
    assert!(jsonschema::meta::is_valid(&PlanSpec::schema()));
    let step = |more: Value| {
        let mut step = json!({"id": "a", "action": "echo"});
        step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"name": "p", "steps": [step]})
    };
    let cases = [
        json!({"steps": []}),
        json!({"name": "p"}),
        json!({"name": "p", "steps": [{"id": "a"}]}),
        json!({"name": "p", "steps": [], "paralel": 3}),
        json!({"name": "p", "steps": [], "parallel": -1}),
        step(json!({"dependency": ["b"]})),
        step(json!({"dependencies": "b"})),
        step(json!({"parameters": []})),
        step(json!({"retry": {}})),
        step(json!({"timeout": 30})),
    ];
    for file in cases {
        assert!(!validator().is_valid(&file), "{file}");
        assert!(serde_json::from_value::<PlanSpec>(file.clone()).is_err(), "{file}");
    }
    assert!(validator().is_valid(&step(json!({"timeout": "30s", "optional": true, "risky": false}))));
}
