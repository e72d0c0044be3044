//! Where secrets come from: the environment, a file, the system's keychain, a command. They are
//! looked up when they are used and kept nowhere.

use std::io::Read as _;
use std::process::{Command, Stdio};

use rekindle::{Error, Result, Secret, SecretRef, SecretSource};

/// The largest secret.
const MAX_BYTES: u64 = 64 << 10;

/// The schemes there are, for messages.
pub const SCHEMES: &str = "@env:VARIABLE, @file:path, @keychain:service/account or @command:program arguments";

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
            secret => Ok(Secret::new(secret)),
        }
    }
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

/// What a program prints.
fn from_command<'a>(reference: &SecretRef, mut words: impl Iterator<Item = &'a str>) -> Result<String> {
    let program = words.next().ok_or_else(|| Error::invalid("a command secret names a program"))?;
    let output = Command::new(program).args(words).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|error| {
        Error::not_found(format!("the program `{program}` for {} cannot be run", reference.as_str())).because(error)
    })?;
    if !output.status.success() {
        return Err(Error::not_found(format!(
            "`{program}` gave no secret for {}: {}",
            reference.as_str(),
            output.status
        )));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Error::invalid(format!("the secret {} is not UTF-8", reference.as_str())))
}
