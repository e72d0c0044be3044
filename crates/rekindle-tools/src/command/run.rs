//! Running a program to its end. The process belongs to a task of its own, so that it is ended in
//! order however the call ends: stopped, timed out, or forgotten.

use std::process::ExitStatus;
use std::time::Duration;

use rekindle::tool::{ToolContext, ToolError};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin};
use tokio_util::sync::CancellationToken;

use crate::outcome::stopped;
use crate::process::{Captured, Group, Start};

/// How long the outputs of a program that has ended are still read: a process that left the group
/// may hold them open for good.
const LINGER: Duration = Duration::from_millis(500);

/// What came of a program.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
}

/// Runs a program to its end, unless the call is stopped before.
pub(super) async fn run(
    start: &Start,
    stdin: Vec<u8>,
    limit: usize,
    grace: Duration,
    context: &ToolContext,
) -> Result<Finished, ToolError> {
    let (child, group) = start.spawn().map_err(ToolError::failed)?;
    let stop = CancellationToken::new();
    // When this call is dropped, by a timeout for example, the task is told to stop.
    let _stop_when_dropped = stop.clone().drop_guard();
    let mut task = tokio::spawn(supervise(child, group, stdin, limit, grace, stop.clone()));
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
    let finished = finished.map_err(|error| ToolError::failed(format!("the program was lost: {error}")))?;
    finished.map_err(|error| ToolError::failed(format!("the program was lost: {error}")))
}

async fn supervise(
    mut child: Child,
    mut group: Group,
    stdin: Vec<u8>,
    limit: usize,
    grace: Duration,
    stop: CancellationToken,
) -> std::io::Result<Finished> {
    let (mut stdout, mut stderr) = (Captured::new(limit), Captured::new(limit));
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let status = {
        let reading = async { tokio::join!(stdout.read(output), stderr.read(errors), feed(input, stdin)) };
        let ending = end(&mut child, &mut group, grace, &stop);
        tokio::pin!(reading, ending);
        let mut read = false;
        let status = loop {
            tokio::select! {
                status = &mut ending => break status,
                _ = &mut reading, if !read => read = true,
            }
        };
        if !read {
            let _ = tokio::time::timeout(LINGER, reading).await;
        }
        status
    };
    Ok(Finished { status: status?, stdout, stderr })
}

/// Waits for the end of the program, or brings it about, and ends whatever it left running.
async fn end(
    child: &mut Child,
    group: &mut Group,
    grace: Duration,
    stop: &CancellationToken,
) -> std::io::Result<ExitStatus> {
    let status = tokio::select! {
        status = child.wait() => status,
        () = stop.cancelled() => group.terminate(child, grace).await,
    };
    group.kill();
    status
}

/// Gives the program its input. One that does not read it all is nobody's concern.
async fn feed(input: Option<ChildStdin>, text: Vec<u8>) {
    if let Some(mut input) = input {
        let _ = input.write_all(&text).await;
    }
}
