//! Requests that commands make on object storage.

use rekindle_fixtures::{S3, S3Request};

use crate::support::Place;

const AGENT_TOOLS: &str = r#"
tools:
  - name: note
    description: Notes.
    parameters: {n: integer}
    shell: echo "$REKINDLE_ARG_N" >> ledger.txt
budgets: {iterations: 2000}
"#;

/// An agent that makes so many calls, each in a turn of its own, and then the calls of `last`.
fn agent(turns: usize, last: &str) -> String {
    let calls = (0..turns).map(|n| format!("      - calls: [{{name: note, arguments: {{n: {n}}}}}]\n"));
    let calls: String = calls.collect();
    let model = "name: noter\nmodel:\n  provider: scripted\n  name: script\n  script:\n    turns:\n";
    format!("{model}{calls}{last}      - text: done\n{AGENT_TOOLS}")
}

struct World {
    place: Place,
    s3: S3,
    url: String,
}

impl World {
    fn new() -> Self {
        let s3 = S3::start();
        let url = s3.url("costs");
        Self { place: Place::new(), s3, url }
    }

    /// Runs a command, and returns its exit status and the requests it made.
    fn requests(&self, arguments: &[&str]) -> (i32, Vec<S3Request>) {
        self.s3.take_requests();
        let all: Vec<&str> = ["--store", &self.url].into_iter().chain(arguments.iter().copied()).collect();
        let said = self.place.run(&all);
        assert!(!said.err.contains("RK0"), "{arguments:?}: {}", said.err);
        (said.code, self.s3.take_requests())
    }
}

fn changes(requests: &[S3Request]) -> usize {
    requests.iter().filter(|request| request.method == "PUT" && request.key.contains("/log/")).count()
}

#[test]
fn a_run_takes_two_requests_for_each_commit() {
    let world = World::new();
    world.place.write("agent.yaml", &agent(100, ""));
    let (code, requests) = world.requests(&["run", "agent.yaml", "go", "--session", "s"]);
    assert_eq!(code, 0);
    let commits = changes(&requests);
    assert!(commits >= 100, "{commits}");
    // Beside its commits: creating the session, its line for lists, one look for messages now and then.
    let most = commits * 22 / 10 + 25;
    assert!(requests.len() <= most, "{} requests for {commits} commits: {requests:#?}", requests.len());
}

#[test]
fn a_long_session_is_resumed_and_listed_by_a_few_requests() {
    let world = World::new();
    // 500 steps, then a question to a person: the run ends and can be resumed.
    let ask = "      - calls: [{name: ask, arguments: {}}]\n";
    let asking =
        "  - name: ask\n    description: Asks.\n    parameters: {}\n    shell: echo asked\n    approval: true\n";
    let text = agent(500, ask).replace("budgets:", &format!("{asking}budgets:"));
    world.place.write("agent.yaml", &text);
    assert_eq!(world.requests(&["run", "agent.yaml", "go", "--session", "s"]).0, 4);
    // Nothing was answered: the session is read, leased, and waits as before.
    let (code, requests) = world.requests(&["resume", "s"]);
    assert_eq!(code, 4);
    let reads = requests.iter().position(|request| request.method == "PUT").unwrap();
    assert!(reads <= 10 && requests.len() <= 20, "{requests:#?}");
    let (code, requests) = world.requests(&["sessions"]);
    assert_eq!((code, requests.len() <= 5), (0, true), "{requests:#?}");
    let (code, requests) = world.requests(&["sessions", "show", "@"]);
    assert_eq!((code, requests.len() <= 15), (0, true), "{requests:#?}");
}
