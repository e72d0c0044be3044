//! Models that cannot be had.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_definitions::{Definition, Format, ModelSpec};

use crate::kit::{Variables, check, refused, unbuildable};

#[test]
fn unknown_providers_are_listed() {
    let faults = refused("name: a\nmodel: opnai/gpt-5\n");
    check(&faults, (2, 8), "there is no provider `opnai`", "did you mean `openai`? there are `openai`, `anthropic`");
    let faults = refused("name: a\nmodel: {provider: opnai, name: x}\n");
    check(&faults, (2, 19), "`opnai` is not known here", "did you mean `openai`?");
    check(&refused("name: a\nmodel: compatible/x\n"), (2, 8), "needs a `base_url`", "");
    check(&refused("name: a\nmodel: {provider: ollama}\n"), (2, 1), "`name` is missing", "");
    let scripted = "name: a\nmodel: {provider: scripted, script: {turns: [{txt: x}]}, name: s}\n";
    check(&refused(scripted), (2, 47), "unknown key `txt`", "did you mean `text`?");
    let faults = refused("name: a\nmodel: {provider: openai, name: x, thinking_budget: 5}\n");
    check(&faults, (2, 36), "`thinking_budget` does not suit the provider `openai`", "");
    check(
        &refused("name: a\nmodel: scripted/./no.yaml\n"),
        (2, 8),
        "the script `./no.yaml` does not exist",
        "relative",
    );
}

#[tokio::test]
async fn unknown_names_of_models_are_listed() {
    let faults = unbuildable("name: a\nmodel: fast\nmodels: {quick: openai/gpt-5}\n").await;
    check(&faults, (2, 8), "there is no model named `fast`", "the names in `models` are: `quick`");
    let faults = unbuildable("name: a\nmodel: x\nmodels: {x: y, y: x}\n").await;
    check(&faults, (3, 19), "in a circle", "");
}

#[tokio::test]
async fn a_missing_key_is_named_and_never_shown() {
    for (model, variable) in [
        ("openai/gpt-5", "OPENAI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
        ("openrouter/a/b", "OPENROUTER_API_KEY"),
    ] {
        let faults = unbuildable(&format!("name: a\nmodel: {model}\n")).await;
        check(
            &faults,
            (2, 8),
            &format!("the key `@env:{variable}`"),
            &format!("set the environment variable {variable}"),
        );
    }
    let faults =
        unbuildable("name: a\nmodel: {provider: azure, name: d, base_url: 'https://x', api_key: '@env:MINE'}\n").await;
    check(&faults, (2, 67), "the key `@env:MINE`", "MINE");
}

#[tokio::test]
async fn models_are_built_with_their_keys() {
    let text = "
name: a
model: best
models:
  best: {provider: anthropic, name: claude-sonnet-4-5, max_tokens: 4000, thinking_budget: 2000, price: {input: 3, output: 15}}
";
    let variables =
        Variables(BTreeMap::from([("ANTHROPIC_API_KEY".into(), "sk-1".into()), ("K".into(), "sk-2".into())]));
    let secrets = Arc::new(variables);
    let definition = Definition::parse("f.yaml", text, Format::Yaml).unwrap();
    let built = definition.clone().builder().secrets(secrets.clone()).build().await.unwrap();
    assert_eq!(built.model_names(), ["anthropic/claude-sonnet-4-5"]);
    let other = definition.builder().secrets(secrets.clone()).model("ollama/llama3.2").build().await.unwrap();
    assert_eq!(other.model_names(), ["ollama/llama3.2"]);
    let azure = "name: a\nmodel: {provider: azure, name: d, base_url: 'https://x.example', api_key: '@env:K', reasoning_effort: low}\n";
    let definition = Definition::parse("f.yaml", azure, Format::Yaml).unwrap();
    assert_eq!(definition.builder().secrets(secrets.clone()).build().await.unwrap().model_names(), ["azure/d"]);
    let definition = Definition::parse("f.yaml", "name: a\nmodel: mine\n", Format::Yaml).unwrap();
    let aliases = BTreeMap::from([("mine".to_owned(), ModelSpec::Reference("ollama/x".into()))]);
    assert_eq!(definition.builder().models(aliases).build().await.unwrap().model_names(), ["ollama/x"]);
}

#[tokio::test]
async fn a_url_that_is_none_is_refused() {
    let faults = unbuildable("name: a\nmodel: {provider: compatible, name: x, base_url: 'not a url'}\n").await;
    assert!(faults.to_string().starts_with("f.yaml:2:"), "{faults}");
    let tool = "name: a\nmodel: ollama/x\ntools:\n  - name: t\n    description: d\n    http: {url: 'ftp//nothing'}\n";
    let faults = unbuildable(tool).await;
    check(&faults, (6, 17), "", "");
}
