//! Running a program to its end. The process belongs to a task of its own, so that it is ended in
//! order however the call ends: stopped, timed out, or forgotten.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rekindle::core::Epoch;
use rekindle::tool::{HeldLease, ToolContext, ToolError};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin};
use tokio_util::sync::CancellationToken;

use crate::outcome::{lost, stopped};
use crate::process::{Captured, Group, Live, Mark, Start, told};

/// Time the outputs of a program that has ended are still read: a process that left the group
/// may hold them open for good.
const LINGER: Duration = Duration::from_millis(500);

/// How long the guard of a killed program is waited for, to tell whether it did that.
const GUARD_WITHIN: Duration = Duration::from_millis(200);

/// A program and how it is run.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) start: Start,
    pub(super) stdin: Vec<u8>,
    /// Number of bytes of each output that are kept.
    pub(super) limit: usize,
    /// Time it has to end by itself when it is told to.
    pub(super) grace: Duration,
}

/// What came of a program.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
    /// Its guard ended it.
    cut: bool,
}

/// Runs a program to its end, unless the call is stopped before.
pub(super) async fn run(job: Job, context: &ToolContext) -> Result<Finished, ToolError> {
    let stop = CancellationToken::new();
    // When this call is dropped, by a timeout for example, the task is told to stop.
    let _stop_when_dropped = stop.clone().drop_guard();
    let live = Live::new(context.idempotency_key(), stop.clone());
    let mut task = tokio::spawn(supervise(job, live, context.fence(), context.lease(), stop.clone()));
    let finished = tokio::select! {
        biased;
        finished = &mut task => finished,
        () = context.cancelled() => {
            stop.cancel();
            // It is no more when this call ends, if that is soon enough for the engine.
            let _ = task.await;
            return Err(stopped());
        }
    };
    let finished = finished.map_err(|error| ToolError::failed(format!("the program was lost: {error}")))??;
    match finished.cut {
        true => Err(lost("its processes were ended, since the lease of the run was not renewed in time".to_owned())),
        false => Ok(finished),
    }
}

async fn supervise(
    job: Job,
    live: Live,
    fence: Epoch,
    mut lease: HeldLease,
    stop: CancellationToken,
) -> Result<Finished, ToolError> {
    let Job { start, stdin, limit, grace } = job;
    let (mut child, mut group, live) = spawn(start, live, fence, &lease).await?;
    let (mut stdout, mut stderr) = (Captured::new(limit), Captured::new(limit));
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = {
        let reading = async { tokio::join!(stdout.read(output), stderr.read(errors), feed(input, stdin)) };
        let ending = end(&mut child, &mut group, &mut lease, grace, &stop);
        tokio::pin!(reading, ending);
        let mut read = false;
        let ended = loop {
            tokio::select! {
                ended = &mut ending => break ended,
                _ = &mut reading, if !read => read = true,
            }
        };
        if !read {
            let _ = tokio::time::timeout(LINGER, reading).await;
        }
        ended
    };
    // Its processes are gone from here on.
    drop(live);
    let (status, cut) = ended.map_err(|error| ToolError::failed(format!("the program was lost: {error}")))?;
    Ok(Finished { status, stdout, stderr, cut })
}

/// Starts the program on a thread that may block. `live` goes with it, so that the call counts as
/// under way until a program that nobody waits for any more has ended, too.
async fn spawn(start: Start, live: Live, fence: Epoch, lease: &HeldLease) -> Result<(Child, Group, Live), ToolError> {
    let lease = lease.clone();
    let spawning = tokio::task::spawn_blocking(move || {
        let key = live.key().to_owned();
        let (child, group) = start.spawn(Mark::Call { key: &key, fence }, told(lease.left()))?;
        Ok::<_, String>((child, group, live))
    });
    let spawned = spawning.await.map_err(|error| ToolError::failed(format!("the program was lost: {error}")))?;
    spawned.map_err(ToolError::failed)
}

/// Waits for the end of the program, or brings it about, and ends whatever it left running. Tells
/// how it ended, and whether its guard ended it.
async fn end(
    child: &mut Child,
    group: &mut Group,
    lease: &mut HeldLease,
    grace: Duration,
    stop: &CancellationToken,
) -> std::io::Result<(ExitStatus, bool)> {
    let (status, cut) = tokio::select! {
        // A program that came to its end has, whatever else did.
        biased;
        status = child.wait() => (Some(status), false),
        () = group.keep(lease) => (None, true),
        () = stop.cancelled() => (terminate(child, group, lease, grace).await, false),
    };
    let killed = |status: &std::io::Result<ExitStatus>| {
        status.as_ref().is_ok_and(|status| status.signal() == Some(Signal::KILL.as_raw()))
    };
    let cut = cut
        || status.as_ref().is_some_and(killed) && tokio::time::timeout(GUARD_WITHIN, group.guard_ended()).await.is_ok();
    group.end(child).await;
    let status = match status {
        Some(status) => status,
        None => child.wait().await,
    };
    Ok((status?, cut))
}

/// Asks the processes to end, and gives the program `grace` to do so.
async fn terminate(
    child: &mut Child,
    group: &mut Group,
    lease: &mut HeldLease,
    grace: Duration,
) -> Option<std::io::Result<ExitStatus>> {
    group.terminate();
    tokio::select! {
        status = child.wait() => Some(status),
        () = group.keep(lease) => None,
        () = tokio::time::sleep(grace) => None,
    }
}

/// Gives the program its input. One that does not read it all is nobody's concern.
async fn feed(input: Option<ChildStdin>, text: Vec<u8>) {
    if let Some(mut input) = input {
        let _ = input.write_all(&text).await;
    }
}
