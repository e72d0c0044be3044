//! A place to run the binary in, sessions to look at, and snapshots of what it says.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;
use rekindle::{Agent, Engine};
use rekindle_models::{Script, ScriptedModel};

/// A folder of its own with nothing in it.
pub struct Place {
    folder: tempfile::TempDir,
    /// The folder in which trust is recorded: never the home of whoever runs the tests.
    state: tempfile::TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the folder in which trust is recorded.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Writes the configuration that is found here, and trusts it.
    pub fn configure(&self, text: &str) {
        self.write("rekindle.toml", text);
        self.ok(&["trust", "--yes"]);
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary, in this place, with an environment that has nothing of the machine's in it.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rekindle"));
        command.args(arguments).current_dir(self.folder.path()).env_clear().stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.folder.path()).env("USER", "maria").env("XDG_STATE_HOME", self.state.path());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments))
    }

    /// Runs it and insists that it went well.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "{arguments:?}\n{}\n{}", said.out, said.err);
        said.out
    }

    /// The same, its output read as JSON.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&arguments)).unwrap()
    }

    /// An engine over the default store of this place.
    pub fn engine(&self) -> Engine {
        Engine::open(&format!("sqlite:{}", self.path("rekindle.db").display())).unwrap()
    }

    /// Runs something on that engine and lets go of the store.
    pub fn with_engine<T, F>(&self, work: impl FnOnce(Engine) -> F) -> T
    where
        F: Future<Output = T>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work(self.engine()))
    }

    /// A session in which a scripted agent answered `question` with `answer`.
    pub fn talk(&self, session: &str, question: &str, answer: &str) {
        let script = Script::new("scripted").text(answer);
        let agent = Agent::builder("guide", ScriptedModel::new(script)).build().unwrap();
        self.with_engine(async |engine| {
            let session = agent.create_session(&engine, session).await.unwrap();
            agent.run_once(question, &session).await.unwrap();
        });
    }

    /// `text` with what differs from run to run replaced: ids by their order, times, this folder.
    pub fn tidy(&self, text: &str) -> String {
        let text = text.replace(&self.folder.path().display().to_string(), "<dir>");
        let ids = Regex::new(r"\b(ses|ckpt|run|msg|own|wait|eff)_[0-9A-Za-z]{6,}").unwrap();
        let mut known: HashMap<String, String> = HashMap::new();
        let mut counts: HashMap<String, usize> = HashMap::new();
        let text = ids.replace_all(&text, |found: &regex::Captures<'_>| {
            let kind = found[1].to_owned();
            known
                .entry(found[0].to_owned())
                .or_insert_with(|| {
                    let count = counts.entry(kind.clone()).or_default();
                    *count += 1;
                    format!("<{kind} {count}>")
                })
                .clone()
        });
        let rules = [
            (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "<time>"),
            (r"\b(now|\d+[smhd] ago)\b", "<ago>"),
            (r"\b\d+ms\b|\b\d+\.\d+s\b", "<span>"),
            (r"\b[0-9a-f]{64}\b", "<hash>"),
            (r" +\n", "\n"),
        ];
        rules.iter().fold(text.into_owned(), |text, (pattern, with)| {
            Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned()
        })
    }

    /// Compares `text`, tidied, with `tests/snapshots/<name>.txt`; `UPDATE_GOLDEN=1` writes it.
    pub fn snapshot(&self, name: &str, text: &str) {
        snapshot(name, &self.tidy(text));
    }
}

/// Runs a command to its end.
pub fn said(mut command: Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Compares `text` with `tests/snapshots/<name>.txt`.
pub fn snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let agreed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(agreed == text, "{name} differs; UPDATE_GOLDEN=1 accepts it\n--- agreed\n{agreed}\n--- now\n{text}");
}

/// Runs a command with a terminal on standard input and standard error, on which `typed` was typed
/// before.
pub fn at_terminal(mut command: Command, typed: &str) -> Said {
    let (controller, terminal) = terminal(typed);
    command.stdin(terminal.try_clone().unwrap()).stderr(terminal).stdout(Stdio::piped());
    finish(command, controller)
}

/// Runs a command with nothing but a terminal of 40 columns; all that is on it is in `err`.
pub fn on_narrow_terminal(mut command: Command) -> Said {
    let (controller, terminal) = terminal("");
    command.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap()).stderr(terminal);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    finish(command, controller)
}

/// Both ends of a terminal.
fn terminal(typed: &str) -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&controller, size).unwrap();
    let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut controller = File::from(controller);
    controller.write_all(typed.as_bytes()).unwrap();
    (controller, terminal)
}

fn finish(mut command: Command, mut controller: File) -> Said {
    let child = command.spawn().unwrap();
    drop(command);
    let heard = std::thread::spawn(move || {
        let (mut heard, mut chunk) = (Vec::new(), [0; 4096]);
        // Ends with an error when the last one who has the terminal is gone.
        while let Ok(bytes @ 1..) = controller.read(&mut chunk) {
            heard.extend_from_slice(&chunk[..bytes]);
        }
        String::from_utf8_lossy(&heard).replace("\r\n", "\n")
    });
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    Said { code: output.status.code().unwrap_or(-1), out, err: heard.join().unwrap() }
}

impl Place {
    /// A session in which a scripted agent had that many turns.
    pub fn turns(&self, session: &str, number: usize) {
        let script = (0..number).fold(Script::new("scripted"), |script, turn| script.text(format!("Answer {turn}.")));
        let agent = Agent::builder("guide", ScriptedModel::new(script)).build().unwrap();
        self.with_engine(async |engine| {
            let session = agent.create_session(&engine, session).await.unwrap();
            for turn in 0..number {
                agent.run_once(format!("Question {turn}?"), &session).await.unwrap();
            }
        });
    }

    /// Spoils a frame of the store.
    pub fn spoil(&self, frame: u32) {
        let connection = rusqlite::Connection::open(self.path("rekindle.db")).unwrap();
        let spoilt = "UPDATE frames SET body = zeroblob(length(body)) WHERE id = ?1";
        assert_eq!(connection.execute(spoilt, [frame]).unwrap(), 1);
    }

    /// A command that ends with an error, read as JSON.
    pub fn fails(&self, arguments: &[&str], code: i32) -> serde_json::Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let said = self.run(&arguments);
        assert_eq!(said.code, code, "{arguments:?}\n{}\n{}", said.out, said.err);
        serde_json::from_str(&said.err).unwrap()
    }
}

/// `text` with sizes replaced.
pub fn without_sizes(text: &str) -> String {
    Regex::new(r"\b\d[\d.,]* (B|kB|MB|GB)\b").unwrap().replace_all(text, "<size>").into_owned()
}
