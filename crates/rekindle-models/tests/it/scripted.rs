//! The scripted model as an engine sees it.

use std::time::Duration;

use rekindle::Json;
use rekindle::core::record::Usage;
use rekindle::message::{Message, Part, ToolResult};
use rekindle::model::{Answer, Delta, Deltas, Model, ModelCapabilities, ModelError, ModelRequest, StopReason};
use rekindle::reduction::View;
use rekindle::tool::ToolSpec;
use rekindle_models::{By, Call, Expect, Script, ScriptedModel, Stop, Turn};
use serde_json::json;

fn request(messages: &[Message]) -> ModelRequest {
    ModelRequest {
        system: None,
        view: View::of(messages.iter().map(|message| message.to_json().unwrap()).collect()),
        tools: [].into(),
        previous: None,
        partial: None,
        attempt: 1,
        idempotency_key: format!("key {}", messages.len()),
        cancel: Default::default(),
    }
}

fn with_tool(request: ModelRequest, name: &str) -> ModelRequest {
    let parameters = Json::from(json!({}));
    let spec = ToolSpec { name: name.into(), description: String::new(), parameters, version: None };
    ModelRequest { tools: [spec].into(), ..request }
}

async fn ask(model: &ScriptedModel, request: &ModelRequest) -> (Result<Answer, ModelError>, Vec<Delta>) {
    let (deltas, mut pieces) = Deltas::channel();
    let answer = model.answer(request, &deltas).await;
    drop(deltas);
    let mut streamed = Vec::new();
    while let Some(piece) = pieces.recv().await {
        streamed.push(piece);
    }
    (answer, streamed)
}

async fn answer(model: &ScriptedModel, request: &ModelRequest) -> Answer {
    ask(model, request).await.0.unwrap()
}

fn text_of(answer: &Answer) -> String {
    answer.parts.iter().filter_map(Part::as_text).collect()
}

fn texts(deltas: &[Delta]) -> Vec<&str> {
    deltas.iter().map(|delta| if let Delta::Text(text) = delta { text } else { "?" }).collect()
}

fn sample() -> ScriptedModel {
    ScriptedModel::load(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/weather.json")).unwrap()
}

/// Every answer comes from a model just loaded, as after a crash.
#[tokio::test(start_paused = true)]
async fn the_sample_goes_on_in_every_process() {
    let mut history = vec![Message::user("what is the weather in Oslo and Rome?")];
    let first = answer(&sample(), &with_tool(request(&history), "weather")).await;
    assert_eq!(first.usage, Usage { input_tokens: 85, output_tokens: 42, cost_micros: 310 });
    let message = Message::new(rekindle::message::Role::Assistant, first.parts);
    let calls: Vec<_> = message.calls().cloned().collect();
    assert_eq!(calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["call_1_1", "call_1_2"]);
    history.push(message);
    history.extend(calls.iter().map(|call| Message::tool(ToolResult::new(call, Json::from("mild")))));

    let failed = ask(&sample(), &request(&history)).await.0.unwrap_err();
    assert_eq!(failed, ModelError::passing("overloaded").with_retry_after(Duration::from_millis(5)));
    let (second, streamed) = ask(&sample(), &ModelRequest { attempt: 2, ..request(&history) }).await;
    assert_eq!(texts(&streamed), ["Oslo h", "as sno", "w, Rom", "e has ", "sun."]);
    assert_eq!(second.unwrap().response.as_deref(), Some("resp_weather"));

    history.extend([Message::assistant("Oslo has snow, Rome has sun."), Message::user("thanks")]);
    assert_eq!(text_of(&answer(&sample(), &request(&history)).await), "you are welcome");
    history.extend([Message::assistant("you are welcome"), Message::user("more")]);
    let end = ask(&sample(), &request(&history)).await.0.unwrap_err();
    assert!(!end.retry && end.message.contains("it has 4 turns, and 3 answers"), "{end}");
}

#[tokio::test]
async fn all_of_an_answer_comes_from_the_script() {
    let turn = Turn::chunks(["he", "llo"])
        .with_reasoning("hm")
        .with_call(Call::raw("add", "{\"a\":").with_id("mine"))
        .with_call(Call::new("add", json!([1])))
        .with_response("r")
        .stopped(Stop::Length);
    let (answer, streamed) = ask(&ScriptedModel::new(Script::new("m").turn(turn)), &request(&[])).await;
    let answer = answer.unwrap();
    assert_eq!(streamed, [Delta::Reasoning("hm".into()), Delta::Text("he".into()), Delta::Text("llo".into())]);
    assert_eq!(answer.stop, StopReason::Length);
    assert_eq!(answer.response.as_deref(), Some("r"));
    assert_eq!(text_of(&answer), "hello");
    let [Part::Reasoning(_), Part::Text(_), Part::ToolCall(bad), Part::ToolCall(good)] = &answer.parts[..] else {
        panic!("{:?}", answer.parts);
    };
    assert_eq!((bad.id.as_str(), bad.malformed.is_some()), ("mine", true));
    assert_eq!((good.id.as_str(), good.arguments.as_str()), ("call_1_2", "[1]"));
}

#[tokio::test]
async fn usage_is_estimated_where_none_is_given() {
    let model = ScriptedModel::new(Script::new("m").text("12345678"));
    let request = request(&[Message::user("u")]);
    let bytes: usize = request.view.items().map(|item| item.as_str().len()).sum();
    let usage = answer(&model, &request).await.usage;
    assert_eq!(usage, Usage { input_tokens: bytes as u64 / 4, output_tokens: 2, cost_micros: 0 });
}

#[tokio::test]
async fn a_cut_stream_is_an_error_and_can_be_continued() {
    let cut = Turn::text("abcdef").with_reasoning("hm").streamed(2).failing_after(2, ModelError::passing("cut"));
    let capabilities = ModelCapabilities { continues_partial: true, ..Default::default() };
    let model = ScriptedModel::new(Script::new("m").turn(cut)).with_capabilities(capabilities);
    let (failed, streamed) = ask(&model, &request(&[])).await;
    assert_eq!((failed.unwrap_err().message.as_str(), streamed.len()), ("cut", 3));
    let go_on = |partial: &str| ModelRequest { partial: Some(partial.into()), attempt: 2, ..request(&[]) };
    let (rest, streamed) = ask(&model, &go_on("abc")).await;
    assert_eq!(texts(&streamed), ["d", "ef"]);
    assert_eq!(rest.unwrap().parts, [Part::Text("def".into())]);
    let other = ask(&model, &go_on("x")).await.0.unwrap_err();
    assert!(!other.retry && other.message.contains("is not how it begins"), "{other}");
}

#[tokio::test]
async fn counting_calls_needs_no_history() {
    let script = Script::new("m").by(By::Calls).text("a").call("t", json!({})).repeating_last();
    let model = ScriptedModel::new(script);
    assert_eq!(text_of(&answer(&model, &request(&[])).await), "a");
    for id in ["call_2_1", "call_3_1", "call_4_1"] {
        let answer = answer(&model.clone(), &request(&[])).await;
        let [Part::ToolCall(call)] = &answer.parts[..] else { panic!("{answer:?}") };
        assert_eq!(call.id, id);
    }
    let later = ScriptedModel::new(Script::new("m").by(By::Calls).text("a").text("b")).at(1);
    assert_eq!(text_of(&answer(&later, &request(&[])).await), "b");
}

#[tokio::test]
async fn a_model_that_keeps_history_goes_on_after_its_last_answer() {
    let capabilities = ModelCapabilities { keeps_history: true, ..Default::default() };
    let fresh = || {
        let script = Script::new("m").text("a").turn(Turn::text("pong").when_last_contains("ping")).text("b");
        ScriptedModel::new(script).with_capabilities(capabilities)
    };
    let mut previous = None;
    for (said, expected) in [("u", "a"), ("ping", "pong"), ("u", "b")] {
        let asked = ModelRequest { previous: previous.clone(), ..request(&[Message::user(said)]) };
        let answer = answer(&fresh(), &asked).await;
        assert_eq!(text_of(&answer), expected);
        previous = answer.response;
    }
}

#[tokio::test]
async fn what_is_not_as_expected_is_named() {
    async fn check(expect: Expect, message: &str) {
        let model = ScriptedModel::new(Script::new("m").turn(Turn::text("a").expecting(expect)));
        let (found, _) = ask(&model, &with_tool(request(&[Message::user("hello")]), "add")).await;
        match found {
            Ok(_) => assert_eq!(message, ""),
            Err(error) => assert_eq!((error.message.as_str(), error.retry), (message, false)),
        }
    }
    check(Expect::last_contains("ell").with_tools(["add"]).with_messages(1), "").await;
    check(Expect::last_contains("bye"), r#"turn 1: expected the last message to contain "bye", but it is "hello""#)
        .await;
    check(Expect::default().with_tools(["b"]), r#"turn 1: expected the tools ["b"], but they are ["add"]"#).await;
    check(Expect::default().with_messages(3), "turn 1: expected 3 messages, but 1 were sent").await;
    let mut previous = Expect::default();
    previous.previous = Some("r".into());
    check(previous, r#"turn 1: expected `previous` to be "r", but there is none"#).await;
}

#[tokio::test]
async fn requests_are_remembered() {
    let model = ScriptedModel::new(Script::new("m").turn(Turn::text("a").failing(ModelError::fatal("no"))));
    let handle = model.clone();
    let call = rekindle::message::ToolCall::new("c", "t", Json::null());
    let result = Message::tool(ToolResult::new(&call, Json::from(json!({"n": 3}))));
    let asked = with_tool(request(&[result]), "t");
    assert_eq!(ask(&model, &asked).await.0.unwrap_err(), ModelError::fatal("no"));
    answer(&model, &ModelRequest { attempt: 2, previous: None, ..asked }).await;
    let requests = handle.requests();
    assert_eq!(
        requests.iter().map(|asked| (asked.attempt, asked.answered)).collect::<Vec<_>>(),
        [(1, false), (2, true)]
    );
    let first = &requests[0];
    assert_eq!((first.messages, first.last.as_str(), first.idempotency_key.as_str()), (1, r#"{"n":3}"#, "key 1"));
    assert_eq!(first.tools, ["t"]);
}

#[tokio::test]
async fn the_ledger_is_shared_by_processes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let script = Script::new("m").turn(Turn::text("a").failing(ModelError::passing("no")));
    for attempt in [1, 2] {
        let model = ScriptedModel::new(script.clone()).with_ledger(&path);
        let _ = ask(&model, &ModelRequest { attempt, idempotency_key: "k\n1".into(), ..request(&[]) }).await;
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "asked k 1\nasked k 1\nanswered k 1\n");
    let nowhere = ScriptedModel::new(script).with_ledger(folder.path().join("no/ledger"));
    let error = ask(&nowhere, &request(&[])).await.0.unwrap_err();
    assert!(!error.retry && error.message.contains("the ledger"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn delays_are_kept_and_cancelling_ends_them() {
    let hour = Duration::from_secs(3600);
    let model = ScriptedModel::new(Script::new("m").turn(Turn::text("a").delayed(hour)));
    let begun = tokio::time::Instant::now();
    answer(&model, &request(&[])).await;
    assert_eq!(begun.elapsed(), hour);

    let asked = request(&[]);
    let cancel = asked.cancel.clone();
    let begun = tokio::time::Instant::now();
    let ((cancelled, _), ()) = tokio::join!(ask(&model, &asked), async { cancel.cancel() });
    assert!(cancelled.unwrap_err().message.contains("cancelled"));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(!model.requests()[1].answered);
}

#[tokio::test]
async fn a_script_that_contradicts_itself_fails_every_request() {
    let model = ScriptedModel::new(Script::new("m").turn(Turn::chunks(["a"]).with_text("b")));
    let error = ask(&model, &request(&[])).await.0.unwrap_err();
    assert!(!error.retry && error.message.contains("turn 1"), "{error}");
    let missing = ScriptedModel::load("no/such/script.json").unwrap_err();
    assert!(missing.message().contains("no/such/script.json"));
    let unreadable = ScriptedModel::from_json("{\"name\": \"m\", \"turn\": []}").unwrap_err();
    assert!(unreadable.message().contains("unknown field `turn`"), "{unreadable}");
}
