//! Where secrets come from: the environment, a file, the system's keychain, a command. They are
//! looked up when they are used and kept nowhere.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use rekindle::{Error, ErrorKind, Masks, Result, Secret, SecretRef, SecretSource};

/// The largest secret.
const MAX_BYTES: u64 = 64 << 10;

/// The time limit of a program that gives a secret: a keychain may ask a person.
const PATIENCE: Duration = Duration::from_secs(120);

/// The schemes there are, for messages.
pub const SCHEMES: &str = "@env:VARIABLE, @file:path, @keychain:service/account or @command:program arguments";

/// The secrets this process has looked up: they are shown nowhere, and stored nowhere.
static MASKS: LazyLock<Masks> = LazyLock::new(Masks::default);

/// The secrets this process has looked up.
pub fn masks() -> &'static Masks {
    &MASKS
}

/// The secrets of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemSecrets;

impl SecretSource for SystemSecrets {
    fn resolve(&self, reference: &SecretRef) -> Result<Secret> {
        let found = match reference.scheme() {
            "env" => from_environment(reference.rest())?,
            "file" => from_file(reference.rest())?,
            "keychain" => from_keychain(reference)?,
            "command" => from_command(reference, reference.rest().split_whitespace())?,
            _ => return Err(unknown(reference)),
        };
        match found.trim_end_matches(['\r', '\n']) {
            "" => Err(Error::not_found(format!("the secret {} is empty", reference.as_str()))),
            secret => {
                let secret = Secret::new(secret);
                MASKS.learn(reference.as_str(), &secret);
                Ok(secret)
            }
        }
    }
}

/// The secrets of this machine, as far as somebody on this side named where they are: a definition, the
/// configuration or the command line. A session says which secret a tool uses, and may have been written by
/// others; it never says where secrets come from.
#[derive(Clone, Debug, Default)]
pub struct NamedSecrets(Arc<Mutex<BTreeSet<String>>>);

impl NamedSecrets {
    /// Lets a reference be used, by that name. What lies at hand is masked from now on, before anything asks for it;
    /// a keychain or a program, which may ask a person, from its first use on.
    pub fn allow(&self, name: &str, reference: &SecretRef) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(reference.as_str().to_owned());
        let at_hand = match reference.scheme() {
            "env" => true,
            // A pipe gives it once.
            "file" => std::path::Path::new(reference.rest()).is_file(),
            _ => false,
        };
        // That it is not there is found out by who needs it.
        if at_hand && let Ok(secret) = SystemSecrets.resolve(reference) {
            MASKS.learn(name, &secret);
        }
    }
}

impl SecretSource for NamedSecrets {
    fn resolve(&self, reference: &SecretRef) -> Result<Secret> {
        let named = self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(reference.as_str());
        if named { SystemSecrets.resolve(reference) } else { Err(not_named(None, reference.as_str())) }
    }
}

/// The error of a secret of which only a session says where it is.
pub fn not_named(name: Option<&str>, reference: &str) -> Error {
    let message = match name {
        Some(name) => format!("the session has the secret `{name}` come from {reference}, and nothing here does"),
        None => format!("the session has a secret come from {reference}, and nothing here does"),
    };
    let name = name.unwrap_or("NAME");
    Error::new(ErrorKind::Untrusted, message).hint(format!(
        "say it again: --secret {}; or put it under [secrets] of the configuration: {name} = \"{reference}\"",
        crate::words::next::quoted(&format!("{name}={reference}"))
    ))
}

/// An error if nothing here can resolve such a reference.
pub fn check(reference: &SecretRef) -> Result<()> {
    match reference.scheme() {
        "env" | "file" | "keychain" | "command" => Ok(()),
        _ => Err(unknown(reference)),
    }
}

fn unknown(reference: &SecretRef) -> Error {
    Error::invalid(format!("there are no `@{}:` secrets", reference.scheme())).hint(format!("write {SCHEMES}"))
}

fn from_environment(variable: &str) -> Result<String> {
    std::env::var(variable).map_err(|error| match error {
        std::env::VarError::NotPresent => Error::not_found(format!("the environment has no {variable}"))
            .hint(format!("set it first: export {variable}=…")),
        std::env::VarError::NotUnicode(_) => Error::invalid(format!("{variable} in the environment is not UTF-8")),
    })
}

fn from_file(path: &str) -> Result<String> {
    let unreadable = |error: std::io::Error| {
        let message = format!("the secret's file {path} cannot be read");
        match error.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(message).because(error).hint("check the path"),
            _ => Error::invalid(message).because(error),
        }
    };
    let mut text = String::new();
    // A device has no size, and no end.
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Error::limit("bytes of a secret", text.len() as u64, MAX_BYTES));
    }
    Ok(text)
}

/// By the system's own tool: `security` on macOS, `secret-tool` of libsecret elsewhere.
fn from_keychain(reference: &SecretRef) -> Result<String> {
    let Some((service, account)) = reference.rest().split_once('/') else {
        return Err(
            Error::invalid("a keychain secret names service and account").hint("write @keychain:service/account")
        );
    };
    let arguments = match cfg!(target_os = "macos") {
        true => vec!["security", "find-generic-password", "-w", "-s", service, "-a", account],
        false => vec!["secret-tool", "lookup", "service", service, "account", account],
    };
    from_command(reference, arguments.into_iter())
}

/// The output of a program. It may ask a person something, so it has time.
fn from_command<'a>(reference: &SecretRef, words: impl Iterator<Item = &'a str>) -> Result<String> {
    from_command_within(PATIENCE, reference, words)
}

fn from_command_within<'a>(
    patience: Duration,
    reference: &SecretRef,
    mut words: impl Iterator<Item = &'a str>,
) -> Result<String> {
    let program = words.next().ok_or_else(|| Error::invalid("a command secret names a program"))?;
    let started = Instant::now();
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| {
        Error::not_found(format!("the program `{program}` for {} cannot be run", reference.as_str())).because(error)
    })?;
    let left = || patience.saturating_sub(started.elapsed());
    let printed = child.stdout.take().map(printed).and_then(|printed| printed.recv_timeout(left()).ok());
    let ended = printed.map(|printed| Ok::<_, Error>((printed, status_within(&mut child, left())?))).transpose()?;
    let Some((printed, Some(status))) = ended else {
        // It is no use any more; if it has ended meanwhile there is nothing to end.
        let _ = child.kill();
        let _ = child.wait();
        let message = format!("`{program}` gave no secret for {} within {patience:?}", reference.as_str());
        return Err(Error::not_found(message).hint("run it by hand to see what it waits for"));
    };
    // One that prints more is cut off, and ends badly for that reason.
    if printed.len() as u64 > MAX_BYTES {
        return Err(Error::limit("bytes of a secret", printed.len() as u64, MAX_BYTES));
    }
    if !status.success() {
        return Err(Error::not_found(format!("`{program}` gave no secret for {}: {status}", reference.as_str())));
    }
    String::from_utf8(printed).map_err(|_| Error::invalid(format!("the secret {} is not UTF-8", reference.as_str())))
}

/// Reads all of it on a thread of its own: a program that keeps it open is not waited for.
fn printed(output: ChildStdout) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is not there: a secret that was cut off would be worse than none.
        if output.take(MAX_BYTES + 1).read_to_end(&mut bytes).is_ok() {
            let _ = sender.send(bytes);
        }
    });
    receiver
}

/// The exit status of a program, if it ends within `patience`.
fn status_within(child: &mut Child, patience: Duration) -> Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        let ended =
            child.try_wait().map_err(|error| Error::invalid("a program cannot be waited for").because(error))?;
        if ended.is_some() || started.elapsed() >= patience {
            return Ok(ended);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(patience: Duration, words: &[&str]) -> Result<String> {
        let reference = format!("@command:{}", words.join(" ")).parse().unwrap();
        from_command_within(patience, &reference, words.iter().copied())
    }

    #[test]
    fn a_program_has_its_time_and_no_more() {
        assert_eq!(run(PATIENCE, &["echo", "hunter2"]).unwrap(), "hunter2\n");
        let error = run(Duration::from_millis(50), &["sleep", "600"]).unwrap_err();
        assert!(error.to_string().contains("`sleep` gave no secret for @command:sleep 600 within 50ms"), "{error}");
        // One that leaves its output open to others, and ends.
        let error = run(Duration::from_millis(50), &["sh", "-c", "sleep 2 & exit 0"]).unwrap_err();
        assert!(error.to_string().contains("within 50ms"), "{error}");
        assert!(run(PATIENCE, &["false"]).unwrap_err().to_string().contains("exit status: 1"));
        assert_eq!(run(PATIENCE, &["head", "-c", "70000", "/dev/zero"]).unwrap_err().code(), "RK0002");
    }

    #[test]
    fn only_what_this_side_named_is_looked_up() {
        let secrets = NamedSecrets::default();
        let (named, other): (SecretRef, SecretRef) =
            ("@command:echo hunter2".parse().unwrap(), "@command:echo other".parse().unwrap());
        secrets.allow("named", &named);
        assert_eq!(secrets.clone().resolve(&named).unwrap().expose(), "hunter2");
        let error = secrets.resolve(&other).unwrap_err();
        assert_eq!(error.code(), "RK0029");
        assert!(error.next_step().contains("--secret 'NAME=@command:echo other'"), "{}", error.next_step());
    }
}
