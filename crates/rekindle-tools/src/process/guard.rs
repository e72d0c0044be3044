//! The guard of a process group: a small shell that is started before the program, leads its group,
//! and ends the group when this process dies or is silent for too long. See
//! `docs/design/0012-tool-processes.md`.

use std::io::{self, PipeReader, PipeWriter, Read as _};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rekindle::core::Epoch;
use rekindle::tool::HeldLease;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};

use super::leftovers::{is_group_alive, own_start};
use super::{DEFAULT_PATH, find_program};

/// The script of a guard. It writes a line once signals to its group cannot end it, and then reads one line for each message: seconds until the group is to be ended
/// if nothing else is heard, or `end`. A closed pipe is the death of the host.
///
/// The timer is a subshell that is told to go with `USR1`. `$!` is compared with its value at the
/// start: a timer that is told to go before it sleeps must not end somebody else's process.
const SCRIPT: &str = r#"
trap '' TERM INT HUP QUIT ALRM PIPE USR2
echo
exec > /dev/null
t=
while read -r n; do
  if [ -n "$t" ]; then kill -USR1 "$t"; wait "$t"; fi
  if [ "$n" = end ]; then break; fi
  (
    o=$!
    trap 'if [ "$!" != "$o" ]; then kill -KILL "$!"; wait; fi; exit' USR1
    sleep "$n" &
    wait "$!"
    case $? in
      127) exit ;;
      1|2) sleep "${n%.*}" & wait "$!" ;;
    esac
    kill -KILL 0
  ) <&- &
  t=$!
done
kill -KILL 0
"#;

/// The variables by which guards are found.
pub(super) const GUARD: &str = "REKINDLE_GUARD";
pub(super) const HOST: &str = "REKINDLE_GUARD_HOST";
pub(crate) const KEY: &str = "REKINDLE_IDEMPOTENCY_KEY";
pub(crate) const FENCE: &str = "REKINDLE_FENCE";
const CALL: &str = "call";
#[cfg(feature = "mcp")]
pub(super) const SERVER: &str = "server";

/// Time a guard may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Time a guard may take to end its group when it is told to.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Time processes may take to be gone once they were killed.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// The longest time a guard is told: not every `sleep` takes more.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Interval at which a guard of a server hears from this process, and the time it waits for that. Shorter
/// than what is left of the default lease of a run when the lease is about to be renewed.
#[cfg(feature = "mcp")]
const BEAT: Duration = Duration::from_secs(2);
#[cfg(feature = "mcp")]
pub(crate) const BEAT_WITHIN: Duration = Duration::from_secs(8);

/// Purpose of a group: with it, a later process finds the guard.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark<'a> {
    /// A call, by its idempotency key, and the epoch of the lease it is made under.
    Call { key: &'a str, fence: Epoch },
    /// A server that this process uses for any number of calls.
    #[cfg(feature = "mcp")]
    Server,
}

/// A process group and its guard. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Not known any more once the group has ended: the number is free then.
    id: Option<Pid>,
    guard: Child,
    lifeline: Arc<Lifeline>,
}

/// The end of the pipe that the guard reads from. When the last handle is closed, by the death of
/// this process for example, the guard ends its group.
#[derive(Debug)]
struct Lifeline(PipeWriter);

impl Lifeline {
    /// Says something to the guard. An error if the guard is gone, or does not read.
    fn say(&self, line: &str) -> io::Result<()> {
        let written = rustix::io::write(&self.0, format!("{line}\n").as_bytes())?;
        if written == line.len() + 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn tell(&self, within: Duration) -> io::Result<()> {
        let within = within.min(LONGEST);
        self.say(&format!("{}.{:03}", within.as_secs(), within.subsec_millis()))
    }
}

impl Group {
    /// Starts the guard of a new group.
    pub(super) fn new(mark: Mark<'_>, path: Option<&str>, within: Duration) -> Result<Self, String> {
        let failed = |error: io::Error| format!("the guard of its processes cannot be started: {error}");
        let shell = find_program("sh", None, None)?;
        let (reader, writer) = io::pipe().map_err(failed)?;
        let (ready, says_ready) = io::pipe().map_err(failed)?;
        // A guard that was stopped must not stop us.
        rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        let path = path.map_or_else(|| DEFAULT_PATH.to_owned(), |path| format!("{DEFAULT_PATH}:{path}"));
        let mut command = Command::new(shell);
        command
            .args(["-c", SCRIPT, "rekindle-guard"])
            .env_clear()
            .env("PATH", path)
            .env(HOST, format!("{}:{}", std::process::id(), own_start()))
            .current_dir("/")
            .stdin(reader)
            .stdout(says_ready)
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        match mark {
            Mark::Call { key, fence } => command.env(GUARD, CALL).env(KEY, key).env(FENCE, fence.to_string()),
            #[cfg(feature = "mcp")]
            Mark::Server => command.env(GUARD, SERVER),
        };
        let guard = command.spawn().map_err(failed)?;
        // Ours are closed, so that the pipe ends with the guard.
        drop(command);
        let id = guard.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let group = Self { id, guard, lifeline: Arc::new(Lifeline(writer)) };
        group.lifeline.tell(within).map_err(failed)?;
        await_ready(ready).map_err(failed)?;
        Ok(group)
    }

    /// The number of the group.
    pub(super) fn id(&self) -> i32 {
        self.id.map_or(0, |id| id.as_raw_nonzero().get())
    }

    /// Lets the guard know that this process is alive, as long as the group is, from a thread of its
    /// own: a runtime that is blocked is no reason to end a server.
    #[cfg(feature = "mcp")]
    pub(crate) fn beat(&self) -> Result<(), String> {
        let lifeline = Arc::downgrade(&self.lifeline);
        let beat = move || {
            while lifeline.upgrade().is_some_and(|lifeline| lifeline.tell(BEAT_WITHIN).is_ok()) {
                std::thread::sleep(BEAT);
            }
        };
        let started = std::thread::Builder::new().name("rekindle-beat".to_owned()).spawn(beat);
        started.map(drop).map_err(|error| format!("no thread can be started: {error}"))
    }

    /// Lets the guard know how long the lease lasts, now and whenever it is renewed. Returns when the
    /// guard has ended, which it does only with its group.
    pub(crate) async fn keep(&mut self, lease: &mut HeldLease) {
        loop {
            let left = lease.left();
            // A guard that cannot be told ends its group in time, or has ended.
            let _ = self.lifeline.tell(told(left));
            tokio::select! {
                _ = self.guard.wait() => return,
                () = lease.renewed() => {}
                () = tokio::time::sleep(LONGEST / 2), if left > LONGEST => {}
            }
        }
    }

    /// Returns when the guard has ended, which it does only with its group.
    pub(crate) async fn guard_ended(&mut self) {
        let _ = self.guard.wait().await;
    }

    /// Asks the processes to end. The guard takes no notice.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.id {
            // That nobody is left is what is wanted.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Ends all that is left, the guard and `child` included, and waits until it is gone.
    pub(crate) async fn end(&mut self, child: &mut Child) {
        let Some(id) = self.id else { return };
        // The guard puts its timer away and kills the group, itself included. Killed by us, it would
        // leave its timer to the first process of the system, which not everywhere buries the dead.
        let told = self.lifeline.say("end").is_ok();
        if !told || tokio::time::timeout(END_WITHIN, self.guard.wait()).await.is_err() {
            self.signal(Signal::KILL);
            let _ = tokio::time::timeout(GONE_WITHIN, self.guard.wait()).await;
        }
        self.id = None;
        let gone = async {
            // One that has ended and was not waited for counts as a member of the group.
            let _ = child.wait().await;
            let mut pause = Duration::from_millis(1);
            while is_alive(id).await {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
            }
        };
        let _ = tokio::time::timeout(GONE_WITHIN, gone).await;
    }
}

/// Returns true if a process of a group runs. Its number is not free as long as anybody is in it.
async fn is_alive(group: Pid) -> bool {
    test_kill_process_group(group).is_ok()
        && tokio::task::spawn_blocking(move || is_group_alive(group)).await.unwrap_or(false)
}

/// Blocks until a guard says that it is ready. An error if it does not.
fn await_ready(mut ready: PipeReader) -> io::Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return ready.read_exact(&mut [0]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The time a guard is told for a lease: a little less, since it hears of it later, and its clock is
/// a process of its own that has to be scheduled.
pub(crate) fn told(left: Duration) -> Duration {
    left - left / 6
}
