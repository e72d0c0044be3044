//! Runs with models that are reached over the network: a server plays both kinds of providers, its
//! journal says what was sent, and a ledger says what the tools did. The key must be found nowhere.

use std::collections::HashSet;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::aimock::AimockServer;
use crate::processes::{end, lines, signal, until};
use crate::support::{Place, Said, said};

const PROVIDERS: [&str; 2] = ["compatible", "anthropic"];

/// What must be found nowhere.
const KEY: &str = "key-of-maria-7f3a91c0ffee";

const ANSWER: &str = "Both rooms are booked, grüße! 🦀";

/// An agent on the server. `book` does its work once both of its calls have begun; `hold` does not
/// end before there is a file `go`, and both write down under which key they were called.
const AGENT: &str = r#"
name: clerk
system: You book rooms.
model:
  provider: PROVIDER
  name: m-1
  base_url: URL
  api_key: "@env:TEST_KEY"
  price: {input: 3, output: 15}
model_retry: {attempts: 3, first_pause: 1ms, longest_pause: 5ms}
grace: 100ms
tools:
  - name: book
    description: Books a room.
    parameters: {city: string}
    shell: |
      echo "$REKINDLE_ARG_CITY" >> begun.txt
      for _ in $(seq 3000); do [ "$(wc -l < begun.txt)" -ge 2 ] && break; sleep 0.02; done
      echo "$REKINDLE_IDEMPOTENCY_KEY $REKINDLE_ARG_CITY" >> ledger.txt
      echo "booked $REKINDLE_ARG_CITY"
    output: text
    in_doubt: idempotent
  - name: hold
    description: Holds a table.
    shell: |
      echo "$REKINDLE_IDEMPOTENCY_KEY" >> held.txt
      for _ in $(seq 3000); do [ -e go ] && break; sleep 0.02; done
      echo held
    output: text
    in_doubt: idempotent
"#;

/// The server; one for all tests that run at the same time.
fn server() -> Option<Arc<AimockServer>> {
    static SHARED: Mutex<Weak<AimockServer>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(AimockServer::start(&fixtures())?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// What the server answers. Every test has a question of its own, which is how its requests are told
/// from those of others; a fixture for the first time comes before the one for all other times.
fn fixtures() -> Value {
    let mut all = Vec::new();
    for provider in PROVIDERS {
        let mut add = |case: &str, when: Value, then: Value| {
            let mut fixture = json!({"match": {"userMessage": question(case, provider)}});
            fixture["match"].as_object_mut().unwrap().extend(when.as_object().unwrap().clone());
            fixture.as_object_mut().unwrap().extend(then.as_object().unwrap().clone());
            all.push(fixture);
        };
        let (first, second, any) = (json!({"sequenceIndex": 0}), json!({"sequenceIndex": 1}), json!({}));
        let (asked, acted) = (json!({"hasToolResult": false}), json!({"hasToolResult": true}));
        let fails = |status: u16, more: Value| {
            let mut response = json!({"error": {"message": format!("not now, {KEY}"), "type": "t"}, "status": status});
            response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"response": response})
        };
        let answers = json!({"response": {"content": ANSWER, "usage": {
            "prompt_tokens": 1_200, "completion_tokens": 34, "input_tokens": 1_200, "output_tokens": 34,
        }}});
        // The first pieces come at once, the rest never does.
        let mut stalls = answers.clone();
        stalls["recordedTimings"] = json!({
            "ttftMs": 0, "interChunkDelaysMs": [0, 0, 0, 0, 600_000, 600_000], "totalDurationMs": 600_000,
        });
        let mut cut = answers.clone();
        cut["truncateAfterChunks"] = json!(4);
        let mut garbled = answers.clone();
        garbled["chaos"] = json!({"malformedRate": 1});
        let book = |city: &str| json!({"name": "book", "arguments": {"city": city}});
        let books = json!({"response": {"content": "one moment", "toolCalls": [book("Oslo"), book("Rome")]}});
        let mut holds = books.clone();
        holds["response"]["toolCalls"].as_array_mut().unwrap().push(json!({"name": "hold", "arguments": {}}));

        add("hello", any.clone(), answers.clone());
        add("tools", asked.clone(), books.clone());
        add("tools", acted.clone(), answers.clone());
        add("limited", first.clone(), fails(429, json!({"retryAfter": 0})));
        add("limited", any.clone(), answers.clone());
        add("busy", first.clone(), fails(529, json!({})));
        add("busy", second, fails(500, json!({})));
        add("busy", any.clone(), answers.clone());
        add("cut", first.clone(), cut);
        add("cut", any.clone(), answers.clone());
        add("garbled", first.clone(), garbled);
        add("garbled", any.clone(), answers.clone());
        let repeats = json!({"response": {"content": format!("your key is {KEY}, is it not?")}});
        add(
            "repeated",
            asked.clone(),
            json!({"response": {"toolCalls": [{"name": "book", "arguments": {"city": KEY}}]}}),
        );
        add("repeated", acted.clone(), repeats);
        add("refused", any.clone(), fails(401, json!({})));
        add("killed at work", asked.clone(), holds);
        add("killed at work", acted.clone(), answers.clone());
        add("killed in speech", asked.clone(), books.clone());
        add("killed in speech", json!({"hasToolResult": true, "sequenceIndex": 0}), stalls.clone());
        add("killed in speech", acted.clone(), answers.clone());
        add("killed with an answer", asked, books);
        add("killed with an answer", acted, answers.clone());
        add("interrupted", first, stalls);
        add("interrupted", any, answers);
    }
    Value::Array(all)
}

fn question(case: &str, provider: &str) -> String {
    format!("{case}, {provider}")
}

/// One question to one provider, asked in a folder of its own.
struct Case {
    place: Place,
    server: Arc<AimockServer>,
    question: String,
}

impl Case {
    /// The same with each provider; nothing without a server.
    fn with_each(case: &str, work: impl Fn(&Self)) {
        for provider in PROVIDERS {
            let Some(server) = server() else { return };
            let url = if provider == "compatible" { format!("{}/v1", server.url()) } else { server.url() };
            let place = Place::new();
            place.write("clerk.yaml", &AGENT.replace("PROVIDER", provider).replace("URL", &url));
            let case = Self { place, server, question: question(case, provider) };
            work(&case);
            case.assert_key_is_nowhere();
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("TEST_KEY", KEY);
        command
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let said = said(self.command(arguments));
        assert!(!said.out.contains(KEY) && !said.err.contains(KEY), "{}\n{}", said.out, said.err);
        said
    }

    fn ask(&self) -> Said {
        self.run(&["run", "clerk.yaml", &self.question, "--session", "talk"])
    }

    fn answers(&self, arguments: &[&str]) -> Said {
        let said = self.run(arguments);
        assert_eq!((said.code, said.out.trim()), (0, ANSWER), "{}", said.err);
        said
    }

    /// Asks in a process that can be killed; what happens to it stands in `events.jsonl`.
    fn start(&self) -> Child {
        let mut command = self.command(&["run", "clerk.yaml", &self.question, "--session", "talk", "--events"]);
        command.stdout(File::create(self.place.path("events.jsonl")).unwrap()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn events(&self) -> Vec<Value> {
        let written = std::fs::read_to_string(self.place.path("events.jsonl")).unwrap_or_default();
        // The last line may be under way.
        written.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
    }

    /// How many calls of that kind are on record as done.
    fn done(&self, kind: &str) -> usize {
        let events = self.events();
        let records = |of: &'static str| events.iter().filter_map(move |event| event["record"].get(of));
        let of_kind: HashSet<&str> = records("effect_intent")
            .filter(|intent| intent["kind"] == kind)
            .filter_map(|intent| intent["effect"].as_str())
            .collect();
        records("effect_outcome").filter(|outcome| of_kind.contains(outcome["effect"].as_str().unwrap())).count()
    }

    /// Text of the answer under way that has come so far.
    fn heard(&self) -> String {
        self.events()
            .iter()
            .filter(|event| event["event"] == "text")
            .filter_map(|event| event["value"].as_str().map(str::to_owned))
            .collect()
    }

    /// What the server was asked here, in order.
    fn asked(&self) -> Vec<Value> {
        let journal = self.server.journal();
        journal.into_iter().filter(|entry| entry["body"].to_string().contains(&self.question)).collect()
    }

    fn statuses(&self) -> Vec<u64> {
        self.asked().iter().map(|entry| entry["response"]["status"].as_u64().unwrap()).collect()
    }

    /// Every request had a body of its own, but for the `repeats` that got no whole answer before.
    fn assert_sent_once(&self, sent: usize, repeats: usize) {
        let asked = self.asked();
        let bodies: HashSet<String> = asked.iter().map(|entry| entry["body"].to_string()).collect();
        assert_eq!((asked.len(), bodies.len()), (sent + repeats, sent), "{asked:#?}");
    }

    /// Both rooms were booked, each under its key and once.
    fn assert_booked_once(&self) {
        let mut booked = lines(&self.place.path("ledger.txt"));
        booked.sort_by_key(|line| line.rsplit(' ').next().unwrap().to_owned());
        let cities: Vec<&str> = booked.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(cities, ["Oslo", "Rome"], "{booked:?}");
        assert_ne!(booked[0].split(' ').next(), booked[1].split(' ').next());
    }

    /// The key stands in no file that was written, the store's among them.
    fn assert_key_is_nowhere(&self) {
        for entry in std::fs::read_dir(self.place.path("")).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap_or_default();
            let found = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
            assert!(!found, "the key stands in {}", path.display());
        }
    }
}

#[test]
fn answers_are_streamed_and_what_they_cost_is_said() {
    Case::with_each("hello", |case| {
        let said = case.answers(&["run", "clerk.yaml", &case.question]);
        assert!(said.err.contains("1.2k → 34 tokens") || said.err.contains("1,200 → 34 tokens"), "{}", said.err);
        let streamed = case.run(&["run", "clerk.yaml", &case.question, "--events"]);
        let events: Vec<Value> = streamed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let pieces: Vec<&str> = events
            .iter()
            .filter(|event| event["event"] == "text")
            .filter_map(|event| event["value"].as_str())
            .collect();
        assert_eq!(pieces.concat(), ANSWER);
        assert!(pieces.len() > 3, "{pieces:?}");
        let report: Value =
            serde_json::from_str(&case.run(&["run", "clerk.yaml", &case.question, "--json"]).out).unwrap();
        assert_eq!((report["answer"].as_str(), report["outcome"].as_str()), (Some(ANSWER), Some("succeeded")));
        assert_eq!((&report["spent"]["input_tokens"], &report["spent"]["output_tokens"]), (&json!(1_200), &json!(34)));
        assert_eq!(report["spent"]["cost_micros"], 1_200 * 3 + 34 * 15);
        assert_eq!(case.asked().len(), 3);
    });
}

#[test]
fn tools_run_at_the_same_time_and_once() {
    Case::with_each("tools", |case| {
        let said = case.ask();
        assert_eq!((said.code, said.out.trim()), (0, ANSWER), "{}", said.err);
        case.assert_booked_once();
        case.assert_sent_once(2, 0);
        let last = case.asked()[1]["body"].to_string();
        assert!(last.contains("booked Oslo") && last.contains("booked Rome"), "{last}");
    });
}

/// Asks, meets `statuses`, and is answered in the end, all under one key.
fn passes(case: &str, statuses: &[u64]) {
    Case::with_each(case, |case| {
        let said = case.ask();
        assert_eq!((said.code, said.out.trim()), (0, ANSWER), "{}", said.err);
        assert_eq!(case.statuses(), statuses, "{}", said.err);
        case.assert_sent_once(1, statuses.len() - 1);
        let keys: HashSet<String> =
            case.asked().iter().map(|entry| entry["headers"]["idempotency-key"].to_string()).collect();
        assert_eq!(keys.len(), 1, "{keys:?}");
    });
}

#[test]
fn a_limit_passes() {
    passes("limited", &[429, 200]);
}

#[test]
fn a_busy_server_passes() {
    passes("busy", &[529, 500, 200]);
}

#[test]
fn a_cut_stream_passes() {
    passes("cut", &[200, 200]);
}

#[test]
fn a_garbled_stream_passes() {
    passes("garbled", &[200, 200]);
}

#[test]
fn a_key_that_is_refused_is_named_and_not_shown() {
    Case::with_each("refused", |case| {
        let said = case.ask();
        assert_eq!(said.code, 8, "{}", said.err);
        assert!(said.err.contains("RK0024") && said.err.contains("refused the key @env:TEST_KEY"), "{}", said.err);
        assert_eq!(case.statuses(), [401]);
        for arguments in [&["resume", "talk", "--json"][..], &["resume", "talk", "--events"]] {
            assert_eq!(case.run(arguments).code, 8);
        }
        for arguments in
            [&["sessions", "show", "talk", "--json"][..], &["log", "talk", "--records"], &["export", "talk"]]
        {
            assert_eq!(case.run(arguments).code, 0);
        }
    });
}

/// Streamed in pieces, as the argument of a call, and in every way of looking at it afterwards.
#[test]
fn a_key_that_the_model_repeats_is_masked() {
    Case::with_each("repeated", |case| {
        case.place.write("begun.txt", "another\n");
        let said = case.run(&["run", "clerk.yaml", &case.question, "--session", "talk", "--events"]);
        assert_eq!(said.code, 0, "{}", said.err);
        let events = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let pieces = events.filter(|event| event["event"] == "text");
        let heard: String = pieces.filter_map(|event| event["value"].as_str().map(str::to_owned)).collect();
        assert!(heard.contains("your key is [secret"), "{heard}\n{}", said.out);
        for arguments in
            [&["sessions", "show", "talk", "--json"][..], &["log", "talk", "--records"], &["export", "talk"]]
        {
            assert_eq!(case.run(arguments).code, 0);
        }
    });
}

#[test]
fn without_its_key_nothing_is_sent_and_nothing_begun() {
    Case::with_each("hello without a key", |case| {
        let said = case.place.run(&["run", "clerk.yaml", &case.question, "--session", "talk"]);
        assert_eq!(said.code, 2, "{}", said.err);
        assert!(said.err.contains("@env:TEST_KEY") && said.err.contains("clerk.yaml:8:"), "{}", said.err);
        assert_eq!(case.place.run(&["sessions"]).code, 3);
        assert_eq!(case.asked().len(), 0);
    });
}

#[test]
fn killed_while_a_tool_runs_it_asks_nothing_again() {
    Case::with_each("killed at work", |case| {
        let mut child = case.start();
        until("the bookings", || case.done("tool") == 2);
        until("the call that holds", || lines(&case.place.path("held.txt")).len() == 1);
        child.kill().unwrap();
        child.wait().unwrap();
        case.place.write("go", "");
        let said = case.answers(&["resume", "talk"]);
        assert!(said.err.contains("1 call was under way"), "{}", said.err);
        case.assert_booked_once();
        case.assert_sent_once(2, 0);
        // That one may be repeated, and was, under the key it had.
        let held = lines(&case.place.path("held.txt"));
        assert!(held.len() == 2 && held[0] == held[1], "{held:?}");
    });
}

#[test]
fn killed_while_an_answer_streams_it_asks_for_that_one_again() {
    Case::with_each("killed in speech", |case| {
        let mut child = case.start();
        // What the tools did is on record while the model already speaks, or a little later.
        until("the beginning of the answer", || case.heard().contains("Both") && case.done("tool") == 2);
        child.kill().unwrap();
        child.wait().unwrap();
        case.answers(&["resume", "talk"]);
        case.assert_booked_once();
        case.assert_sent_once(2, 1);
        let asked = case.asked();
        assert_eq!(asked[1]["body"], asked[2]["body"]);
        assert_eq!(asked[1]["headers"]["idempotency-key"], asked[2]["headers"]["idempotency-key"]);
    });
}

#[test]
fn killed_with_the_answer_on_record_it_is_not_asked_for_again() {
    Case::with_each("killed with an answer", |case| {
        let mut child = case.start();
        until("the first answer", || case.done("model") >= 1);
        child.kill().unwrap();
        child.wait().unwrap();
        let resumed = case.run(&["resume", "talk"]);
        // It may have come to its end before it was killed.
        assert!(resumed.code == 0 || resumed.err.contains("RK0010"), "{}", resumed.err);
        let keys: HashSet<String> = lines(&case.place.path("ledger.txt")).into_iter().collect();
        assert_eq!(keys.len(), 2, "{keys:?}");
        let first = case.asked().iter().filter(|entry| !entry["body"].to_string().contains("booked")).count();
        assert_eq!(first, 1);
    });
}

#[test]
fn ctrl_c_during_an_answer_pauses_and_resume_asks_for_it_again() {
    Case::with_each("interrupted", |case| {
        let child = case.start();
        until("the beginning of the answer", || case.heard().contains("Both"));
        signal(&child, Signal::INT);
        let said = end(child);
        assert_eq!(said.code, 130, "{}", said.err);
        assert_eq!(case.place.json(&["sessions", "show", "talk"])["status"], "paused");
        case.answers(&["resume", "talk"]);
        case.assert_sent_once(1, 1);
    });
}
