//! Tools: groups, order, parallelism, tries, keys, memory, and runs without pending writes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rekindle::core::Record;
use rekindle::core::record::{CheckpointTrigger, EffectIntent, EffectKind, InDoubtPolicy, OutcomeStatus, RunOutcome};
use rekindle::tool::{FnTool, ToolContext, ToolError, ToolGroup, ToolOutput, tool};
use rekindle::{Frequency, Json, ResumeOptions};
use rekindle_models::{Call, Script, Turn};
use rekindle_store::{Fault, FaultPlan};
use serde_json::json;
use tokio::sync::Barrier;

use crate::kit::{Held, Rig, agent, echo, of, quick};
use crate::support::{Kind, Of};

/// A list that tools write into.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn intents(records: &[Record], name: &str) -> Vec<EffectIntent> {
    let intents = records.iter().filter_map(|record| match record {
        Record::EffectIntent(intent) if intent.name == name => Some(intent.clone()),
        _ => None,
    });
    intents.collect()
}

#[tokio::test]
async fn a_group_opens_on_demand_and_stays_open_over_resumes() {
    let rig = Rig::new(Kind::Sqlite).await;
    let held = Held::default();
    let script = Script::new("m")
        .call("echo", of("too early"))
        .call("words", json!({}))
        .call("slow", of("a"))
        .call("echo", of("now"))
        .text("done");
    let (agent, spy) = agent(script, |builder| {
        builder.tool(held.tool("slow")).group(ToolGroup::new("words", "Tools for words.").tool(echo()))
    });
    let run = agent.run("go", &rig.session).await.unwrap();
    held.began().await;
    run.stop("a while");
    held.release();
    run.report().await.unwrap();
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "done");
    let shown: Vec<_> = spy.requests().into_iter().map(|asked| asked.tools.join(" ")).collect();
    assert_eq!(shown, ["slow words", "slow words", "echo slow", "echo slow", "echo slow"]);
    let results = rig.results().await;
    assert!(results[0].error && results[0].content.as_str().contains("there is no tool `echo`"));
    assert_eq!(results[1].content.to_value().unwrap(), json!({"opened": ["echo"]}));
    assert_eq!(results[3].content.as_str(), "\"now\"");
}

fn noted(log: &Log, name: &str) -> FnTool<Of> {
    let (log, name) = (log.clone(), name.to_owned());
    tool(name.clone(), "Notes when it begins and ends.", move |_, of: Of| {
        let (log, name) = (log.clone(), name.clone());
        async move {
            log.say(format!("+{name} {}", of.what));
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            log.say(format!("-{name} {}", of.what));
            Ok::<_, ToolError>(of.what)
        }
    })
}

#[tokio::test]
async fn a_sequential_call_waits_for_those_before_it_and_holds_up_those_after_it() {
    let rig = Rig::memory().await;
    let log = Log::default();
    let script = Script::new("m")
        .calls(
            [("any", "1"), ("any", "2"), ("one", "3"), ("one", "4"), ("any", "5")]
                .map(|(name, what)| Call::new(name, of(what))),
        )
        .text("done");
    let (agent, _) = agent(script, |builder| builder.tool(noted(&log, "any")).tool(noted(&log, "one").sequential()));
    agent.run_once("go", &rig.session).await.unwrap();
    let lines = log.lines();
    assert_eq!(lines[4..], ["+one 3", "-one 3", "+one 4", "-one 4", "+any 5", "-any 5"]);
    assert_eq!(lines[..2], ["+any 1", "+any 2"], "those two ran together");
}

#[tokio::test]
async fn parallel_calls_run_at_the_same_time_and_end_in_the_order_of_the_answer() {
    let rig = Rig::memory().await;
    let barrier = Arc::new(Barrier::new(3));
    let log = Log::default();
    let noted = log.clone();
    let meet = tool("meet", "Waits for the others.", move |_, of: Of| {
        let (barrier, log) = (barrier.clone(), noted.clone());
        async move {
            barrier.wait().await;
            // The later the call, the earlier it ends.
            for _ in 0..(10 * (9 - of.what.parse::<u32>().unwrap())) {
                tokio::task::yield_now().await;
            }
            log.say(&*of.what);
            Ok::<_, ToolError>(of.what)
        }
    });
    let script = Script::new("m").calls(["1", "2", "3"].map(|what| Call::new("meet", of(what)))).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(meet));
    agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(log.lines(), ["3", "2", "1"]);
    let results: Vec<_> = rig.results().await.iter().map(|result| result.content.to_string()).collect();
    assert_eq!(results, ["\"1\"", "\"2\"", "\"3\""]);
}

/// The most calls that ran at once, of six that meet in pairs.
async fn most_at_once(limit_tool: bool) -> usize {
    let rig = Rig::memory().await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (barrier, seen) = (Arc::new(Barrier::new(2)), most.clone());
    let pair = tool("pair", "Waits for one other.", move |_, of: Of| {
        let (now, most, barrier) = (now.clone(), seen.clone(), barrier.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            barrier.wait().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, ToolError>(of.what)
        }
    });
    let calls = ["1", "2", "3", "4", "5", "6"].map(|what| Call::new("pair", of(what)));
    let (agent, _) = agent(Script::new("m").calls(calls).text("done"), |builder| match limit_tool {
        true => builder.tool(pair.concurrency(2)),
        false => builder.tool(pair).parallel(2),
    });
    assert_eq!(agent.run_once("go", &rig.session).await.unwrap().text(), "done");
    most.load(Ordering::SeqCst)
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_the_tool_or_the_agent_allows() {
    assert_eq!(most_at_once(true).await, 2);
    assert_eq!(most_at_once(false).await, 2);
}

/// Notes its key and fails until the third try.
fn flaky(log: &Log) -> FnTool<Of> {
    let log = log.clone();
    tool("flaky", "Fails twice.", move |call: ToolContext, of: Of| {
        let log = log.clone();
        async move {
            log.say(call.idempotency_key());
            if call.attempt() < 3 { Err(ToolError::retry("not yet")) } else { Ok(of.what) }
        }
    })
    .retries(quick(3))
}

#[tokio::test]
async fn tries_are_recorded_and_share_one_key() {
    let rig = Rig::memory().await;
    let log = Log::default();
    let (agent, _) = agent(Script::new("m").call("flaky", of("a")).text("done"), |builder| builder.tool(flaky(&log)));
    agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(log.lines().len(), 3);
    assert_eq!(log.lines().iter().collect::<BTreeSet<_>>().len(), 1, "{:?}", log.lines());
    let records = rig.records().await;
    let intents = intents(&records, "flaky");
    assert_eq!(intents.iter().map(|intent| intent.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(intents.iter().all(|intent| intent.idempotency_key == log.lines()[0]));
    let outcomes = records.iter().filter_map(|record| match record {
        Record::EffectOutcome(outcome) if outcome.effect == intents[0].effect => {
            Some((outcome.attempt, outcome.status))
        }
        _ => None,
    });
    let expected = [(1, OutcomeStatus::InfraError), (2, OutcomeStatus::InfraError), (3, OutcomeStatus::Ok)];
    assert_eq!(outcomes.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_fork_has_keys_of_its_own() {
    let rig = Rig::memory().await;
    let log = Log::default();
    let noted = log.clone();
    let pay = tool("pay", "Pays.", move |call: ToolContext, of: Of| {
        noted.say(call.idempotency_key());
        async move { Ok::<_, ToolError>(of.what) }
    });
    let (agent, _) = agent(Script::new("m").call("pay", of("a")).text("done"), |builder| {
        builder.tool(pay.writes().idempotent()).checkpoints(Frequency::PerIteration)
    });
    agent.run_once("go", &rig.session).await.unwrap();
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
    let first = found.last().unwrap().checkpoint.id.clone();
    let options = ResumeOptions::new("maria").from_checkpoint(first);
    let report = agent.resume_with(&rig.session, options).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "done");
    assert_eq!(log.lines().len(), 2);
    assert_ne!(log.lines()[0], log.lines()[1]);
}

#[tokio::test]
async fn the_fence_is_the_epoch_of_the_lease_and_grows() {
    let rig = Rig::memory().await;
    let log = Log::default();
    let noted = log.clone();
    let look = tool("look", "Looks at its fence.", move |call: ToolContext, of: Of| {
        let log = noted.clone();
        async move {
            let info = call.engine().journal().open(call.session()).await?;
            let lease = info.current_branch()?.lease.clone().unwrap();
            assert_eq!(lease.epoch, call.fence());
            log.say(call.fence().0.to_string());
            Ok::<_, ToolError>(of.what)
        }
    });
    let script = Script::new("m").call("look", of("a")).text("one").call("look", of("b")).text("two");
    let (agent, _) = agent(script, |builder| builder.tool(look));
    agent.run_once("go", &rig.session).await.unwrap();
    agent.run_once("go", &rig.session).await.unwrap();
    let fences: Vec<u64> = log.lines().iter().map(|line| line.parse().unwrap()).collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
}

#[tokio::test]
async fn a_tool_can_end_the_turn() {
    let rig = Rig::memory().await;
    let last = tool("last", "Ends it.", async |_, of: Of| {
        Ok::<_, ToolError>(ToolOutput::json(Json::from(of.what.as_str())).and_terminate("the goal is reached"))
    });
    let script = Script::new("m").calls([Call::new("echo", of("a")), Call::new("last", of("b"))]).text("next");
    let (agent, spy) = agent(script, |builder| builder.tool(last).tool(echo()));
    let report = agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!((report.outcome, report.reason.as_str()), (RunOutcome::Succeeded, "the goal is reached"));
    assert_eq!((spy.count(), rig.results().await.len()), (1, 2));
    assert_eq!(agent.run_once("on", &rig.session).await.unwrap().text(), "next");
}

#[tokio::test]
async fn memory_is_set_by_tools_and_people_and_read_by_tools() {
    let rig = Rig::new(Kind::Sqlite).await;
    let remember = tool("remember", "Remembers.", async |_, of: Of| {
        Ok::<_, ToolError>(ToolOutput::json(Json::null()).and_remember("colour", Json::from(of.what.as_str())))
    });
    let recall =
        tool("recall", "Recalls.", async |call: ToolContext, of: Of| Ok::<_, ToolError>(call.memory(&of.what).await?));
    let script = Script::new("m")
        .call("remember", of("blue"))
        .call("recall", of("colour"))
        .text("one")
        .calls(["colour", "size", "name", "none"].map(|key| Call::new("recall", of(key))))
        .text("two");
    let (agent, _) = agent(script, |builder| builder.tool(remember).tool(recall));
    agent.run_once("go", &rig.session).await.unwrap();
    let options = ResumeOptions::new("maria").set("colour", "\"red\"").set("size", "{\"w\": 1}").set("name", "no json");
    let run = agent.run_with(vec!["more".into()], &rig.again().await, options).await.unwrap();
    run.report().await.unwrap();
    let results: Vec<_> = rig.results().await.iter().skip(1).map(|result| result.content.to_string()).collect();
    assert_eq!(results, ["\"blue\"", "\"red\"", "{\"w\": 1}", "\"no json\"", "null"]);
    let edit = rig.records().await.into_iter().find_map(|record| match record {
        Record::Edit(edit) => Some(edit.author),
        _ => None,
    });
    assert_eq!(edit.as_deref(), Some("maria"));
}

#[tokio::test]
async fn a_tool_can_mark_a_checkpoint() {
    let rig = Rig::memory().await;
    let mark = tool("mark", "Marks.", async |call: ToolContext, of: Of| {
        Ok::<_, ToolError>(call.checkpoint(&of.what).await?.to_string())
    });
    let script = Script::new("m").call("mark", of("half way")).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(mark).checkpoints(Frequency::Manual));
    agent.run_once("go", &rig.session).await.unwrap();
    let found = rig.engine.journal().checkpoints(rig.key(), None, None, 10).await.unwrap();
    assert_eq!(found.len(), 1);
    let checkpoint = &found[0].checkpoint;
    assert_eq!((checkpoint.description.as_str(), checkpoint.trigger), ("half way", CheckpointTrigger::Manual));
    assert_eq!(rig.results().await[0].content, Json::from(checkpoint.id.as_str()));
}

#[tokio::test]
async fn what_a_tool_kept_of_its_result_is_seen_after_a_crash_and_is_no_result() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (session, plan) = rig.faulty().await;
    let partly = tool("partly", "Works in pieces.", move |call: ToolContext, _: Of| {
        let plan = plan.clone();
        async move {
            call.keep_partial(Json::from("half")).await?;
            if call.attempt() == 1 {
                call.checkpoint("flush").await?;
                plan.fail_from(0, Fault::Unreachable);
            }
            Ok::<_, ToolError>("whole")
        }
    });
    let script = Script::new("m").call("partly", of("a")).text("done");
    let sync = rekindle::Durability::Sync;
    let (agent, _) = agent(script, |builder| builder.tool(partly).durability(sync));
    assert_eq!(agent.run_once("go", &session).await.unwrap_err().code(), "RK0016");
    let state = rig.state().await;
    let open: Vec<_> = state.open_effects().collect();
    assert_eq!((open.len(), &open[0].partials[..]), (1, &[Json::from("half")][..]));
    rig.world.pass_leases();
    agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(rig.results().await[0].content.as_str(), "\"whole\"");
}

#[tokio::test]
async fn the_version_of_a_tool_stands_in_its_intents() {
    let rig = Rig::memory().await;
    let script = Script::new("m").call("echo", of("a")).text("done");
    let (agent, _) = agent(script, |builder| builder.tool(echo().version("2.1")));
    agent.run_once("go", &rig.session).await.unwrap();
    assert_eq!(intents(&rig.records().await, "echo")[0].version.as_deref(), Some("2.1"));
}

/// Notes each call; the first call of `b` kills the store.
fn deadly(log: &Log, plan: &Arc<FaultPlan>, name: &'static str) -> FnTool<Of> {
    let (log, plan) = (log.clone(), plan.clone());
    tool(name, "Notes.", move |call: ToolContext, of: Of| {
        let (log, plan) = (log.clone(), plan.clone());
        async move {
            let journal = call.engine().journal();
            let records = crate::support::records(call.engine(), call.session(), &rekindle::BranchId::main()).await;
            let tools = records.iter().filter(
                |(_, record)| matches!(record, Record::EffectIntent(intent) if intent.kind == EffectKind::Tool),
            );
            log.say(format!("{name} {} {}", of.what, tools.count()));
            if name == "b" && log.lines().len() == 2 {
                plan.fail_from(0, Fault::Unreachable);
            }
            drop(journal.open(call.session()).await?);
            Ok::<_, ToolError>(of.what)
        }
    })
    .sequential()
}

#[tokio::test]
async fn without_pending_writes_a_step_is_repeated_whole_and_says_so() {
    let rig = Rig::new(Kind::Sqlite).await;
    let (session, plan) = rig.faulty().await;
    let log = Log::default();
    let script = Script::new("m").calls([Call::new("a", of("1")), Call::new("b", of("2"))]).turn(Turn::text("done"));
    let (agent, spy) = agent(script, |builder| {
        let sync = rekindle::Durability::Sync;
        builder.tool(deadly(&log, &plan, "a")).tool(deadly(&log, &plan, "b")).pending_writes(false).durability(sync)
    });
    assert_eq!(agent.run_once("go", &session).await.unwrap_err().code(), "RK0016");
    let started = rig.records().await.into_iter().find_map(|record| match record {
        Record::RunStarted(started) => Some(started.weakened),
        _ => None,
    });
    let weakened = started.unwrap();
    assert!(weakened.iter().any(|text| text.starts_with("pending_writes=false")), "{weakened:?}");
    assert_eq!(intents(&rig.records().await, "a").len(), 0, "nothing of the step is on record");
    rig.world.pass_leases();
    let report = agent.resume(&rig.again().await).await.unwrap().report().await.unwrap();
    assert_eq!(report.text(), "done");
    assert_eq!(log.lines(), ["a 1 0", "b 2 0", "a 1 0", "b 2 0"]);
    let keys: Vec<_> = spy.requests().into_iter().map(|asked| asked.idempotency_key).collect();
    assert!(!keys[1..].contains(&keys[0]), "the answer with the calls was on record: {keys:?}");
    assert_eq!(intents(&rig.records().await, "a").len(), 1);
}

#[tokio::test]
async fn a_call_whose_answer_was_lost_is_treated_as_in_doubt() {
    use InDoubtPolicy::{Ask, Check, Idempotent, Never, ReplaySafe};
    let ends = [
        (ReplaySafe, 2, "Succeeded"),
        (Idempotent, 2, "Succeeded"),
        (Ask, 1, "Waiting"),
        (Check, 1, "Waiting"),
        (Never, 1, "RK0022"),
    ];
    for (policy, calls, outcome) in ends {
        let rig = Rig::new(Kind::Memory).await;
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let lossy = tool("send", "Sends.", move |_, _: Of| {
            let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            async move { if first { Err(ToolError::in_doubt("the line broke")) } else { Ok("sent") } }
        });
        let lossy = lossy.writes().in_doubt(policy).retries(quick(3));
        let (agent, _) = agent(Script::new("m").call("send", of("a")).text("done"), |builder| builder.tool(lossy));
        let end = match agent.run_once("go", &rig.session).await {
            Ok(report) => format!("{:?}", report.outcome),
            Err(error) => error.code().to_owned(),
        };
        assert_eq!((made.load(Ordering::SeqCst), end.as_str()), (calls, outcome), "{policy:?}");
    }
}
