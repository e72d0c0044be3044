//! Child processes: finding programs, starting them under a guard, and output that fits.

mod guard;
mod leftovers;
mod live;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

#[cfg(feature = "mcp")]
pub(crate) use guard::BEAT_WITHIN;
pub(crate) use guard::{FENCE, Group, KEY, Mark, told};
pub(crate) use leftovers::end_call;
#[cfg(feature = "mcp")]
pub(crate) use leftovers::end_orphaned_servers;
pub(crate) use live::Live;

/// Where programs are looked for if the environment of the child has no `PATH`.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program and what it is started with. It inherits nothing.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) command: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) directory: Option<PathBuf>,
}

impl Start {
    /// Starts it in a process group with a guard, with pipes for everything it says. The guard ends the
    /// group when this process dies, or `within` that time unless it hears of more. The text of an
    /// error names the program. Blocks for as long as two programs take to start.
    pub(crate) fn spawn(&self, mark: Mark<'_>, within: Duration) -> Result<(Child, Group), String> {
        let name = self.command.first().map(String::as_str).unwrap_or_default();
        check_directory(self.directory.as_deref())?;
        let path = self.environment.get("PATH");
        let program = find_program(name, path, self.directory.as_deref())?;
        let group = Group::new(mark, path.map(String::as_str), within)?;
        let mut command = Command::new(program);
        command
            .arg0(name)
            .args(&self.command[1..])
            .env_clear()
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(group.id())
            .kill_on_drop(true);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let child = command.spawn().map_err(|error| format!("`{name}` cannot be started: {error}"))?;
        Ok((child, group))
    }
}

/// The file of a program: a path as it is, seen from `directory`, or a name on `path`.
pub(crate) fn find_program(name: &str, path: Option<&String>, directory: Option<&Path>) -> Result<PathBuf, String> {
    let here = directory.unwrap_or(Path::new("."));
    if name.contains('/') {
        let file = here.join(name);
        return match is_program(&file) {
            // Seen from the directory of the child, a relative path would mean something else.
            true => file.canonicalize().map_err(|error| format!("`{name}` cannot be found: {error}")),
            false => Err(format!("no such program `{name}` in `{}`", here.display())),
        };
    }
    let path = path.map_or(DEFAULT_PATH, String::as_str);
    // An empty entry would mean the current directory, which is nobody's intention.
    let places = path.split(':').filter(|place| !place.is_empty());
    let mut found = places.map(|place| here.join(place).join(name)).filter(|file| is_program(file));
    match found.next() {
        Some(file) if !name.is_empty() => {
            std::path::absolute(file).map_err(|error| format!("`{name}` cannot be found: {error}"))
        }
        _ => Err(format!("no such program `{name}` on PATH ({path})")),
    }
}

/// An error that names the directory if it is none.
pub(crate) fn check_directory(directory: Option<&Path>) -> Result<(), String> {
    match directory {
        Some(directory) if !directory.is_dir() => Err(format!("no such directory `{}`", directory.display())),
        _ => Ok(()),
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The names variables may have.
pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// How a process ended, in words.
pub(crate) fn ended(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}{}", signal_name(signal)),
        (None, None) => "ended".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match Signal::from_named_raw(signal) {
        Some(Signal::KILL) => " (SIGKILL)",
        Some(Signal::TERM) => " (SIGTERM)",
        Some(Signal::INT) => " (SIGINT)",
        Some(Signal::HUP) => " (SIGHUP)",
        Some(Signal::PIPE) => " (SIGPIPE)",
        Some(Signal::SEGV) => " (SIGSEGV)",
        Some(Signal::ABORT) => " (SIGABRT)",
        _ => "",
    }
}

/// What a process wrote: all of it, or its beginning and its end.
#[derive(Debug)]
pub(crate) struct Captured {
    limit: usize,
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    dropped: u64,
}

impl Captured {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, head: Vec::new(), tail: Default::default(), dropped: 0 }
    }

    /// Reads to the end, or until that fails, which is the same here.
    pub(crate) async fn read(&mut self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut piece = vec![0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut piece).await {
            self.take(&piece[..count]);
        }
    }

    fn take(&mut self, piece: &[u8]) {
        let room = (self.limit - self.limit / 2).saturating_sub(self.head.len()).min(piece.len());
        self.head.extend_from_slice(&piece[..room]);
        self.tail.extend(&piece[room..]);
        let over = self.tail.len().saturating_sub(self.limit / 2);
        self.tail.drain(..over);
        self.dropped += over as u64;
    }

    /// Whether something was left out.
    pub(crate) fn is_truncated(&self) -> bool {
        self.dropped > 0
    }

    /// All of it, unless something was left out.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.head.iter().chain(&self.tail).copied().collect()
    }

    /// It as text. Bytes that are no text are replaced; where something was left out, it says so.
    pub(crate) fn text(&self) -> String {
        if !self.is_truncated() {
            return String::from_utf8_lossy(&self.bytes()).into_owned();
        }
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        format!("{head}\n… {} bytes left out …\n{tail}", self.dropped)
    }

    /// The last part of it as text, without the white space around it.
    pub(crate) fn end(&self, most: usize) -> String {
        let bytes = self.bytes();
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(most)..]).trim().to_owned();
        match bytes.len() > most {
            true => format!("… {text}"),
            false => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        let check = |pieces: &[&str], expected: &str| {
            let mut captured = Captured::new(8);
            pieces.iter().for_each(|piece| captured.take(piece.as_bytes()));
            assert_eq!(captured.text(), expected);
        };
        check(&[], "");
        check(&["abc", "defgh"], "abcdefgh");
        check(&["abcdefghi"], "abcd\n… 1 bytes left out …\nfghi");
        check(&["a", "bcdefghijklmno", "p"], "abcd\n… 8 bytes left out …\nmnop");
    }

    #[test]
    fn programs_are_found_on_the_path_of_the_child() {
        assert!(find_program("sh", None, None).unwrap().is_absolute());
        let error = find_program("sh", Some(&"/nonexistent".to_owned()), None).unwrap_err();
        assert_eq!(error, "no such program `sh` on PATH (/nonexistent)");
        assert!(find_program("", None, None).is_err());
        assert!(find_program("./sh", None, Some(Path::new("/bin"))).is_ok());
        assert!(find_program("./none", None, Some(Path::new("/bin"))).unwrap_err().contains("in `/bin`"));
    }
}
