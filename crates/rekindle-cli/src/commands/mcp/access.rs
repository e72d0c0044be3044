//! Callers of a server: configured tokens, or one that is made at its start; the users of a socket.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rekindle::{Error, Identity, SecretRef};
use rekindle_server::{Access, Token};
use rekindle_store::private::Modes;

use super::Arguments;
use crate::app::App;
use crate::failure::Failure;
use crate::files::unwritable;
use crate::owner;

/// A token that was made for one server, to be shown once.
pub struct MadeToken {
    text: String,
    file: Option<PathBuf>,
}

impl Arguments {
    /// Returns who may ask on a port, and the token that was made because none is configured.
    pub(super) fn access(&self, app: &App) -> Result<(Access, Option<MadeToken>), Failure> {
        let said = self.token.as_deref().map(str::parse::<SecretRef>).transpose().map_err(|error| {
            // What was said may be the token itself.
            drop(error);
            Error::invalid("--token takes where the token is, not the token")
                .hint(format!("write {}", crate::secrets::SCHEMES))
        })?;
        let mut access = Access::new();
        let mut made = None;
        for (name, secret) in app.settings.server_tokens(said)? {
            access = access.with_token(name, Token::new(secret.expose())?);
        }
        if access.is_empty() {
            let (token, text) = Token::generate()?;
            access = access.with_token("token", token);
            made = Some(MadeToken { text: text.to_string(), file: self.token_file.clone() });
        } else if self.token_file.is_some() {
            return Err(Error::invalid("--token-file is for a token that is made here, and one is configured")
                .hint("leave it out, or remove the tokens from the configuration")
                .into());
        }
        Ok((self.names(app, access), made))
    }

    /// Returns who may ask on a socket: this user, and root.
    pub(super) fn socket_access(&self, app: &App) -> Access {
        let uid = rustix::process::geteuid().as_raw();
        let mut access = Access::new().with_peer(uid, app.identity());
        if uid != 0 {
            access = access.with_peer(0, Identity::proven("root", owner::credential_of(0)));
        }
        self.names(app, access)
    }

    fn names(&self, app: &App, access: Access) -> Access {
        let (hosts, origins) = app.settings.server_names();
        let access = hosts.iter().chain(&self.allow_host).fold(access, |access, host| access.with_host(host));
        origins.iter().chain(&self.allow_origin).fold(access, |access, origin| access.with_origin(origin))
    }
}

impl MadeToken {
    /// Writes it where only this user can read it, and says it once. The file is there until what is returned
    /// is dropped.
    pub fn hand_over(self, app: &App, address: SocketAddr) -> Result<TokenFile, Failure> {
        let path = match self.file {
            Some(path) => path,
            None => usual_place(address)?,
        };
        let failed = |error| unwritable(&path, error);
        if let Some(folder) = path.parent() {
            Modes::PRIVATE.create_dir_all(folder).map_err(failed)?;
        }
        // Replaced, not written over: others may have opened it, or may read it.
        match path.symlink_metadata() {
            Ok(found) if !found.is_dir() => std::fs::remove_file(&path).map_err(failed)?,
            _ => {}
        }
        Modes::PRIVATE.write_new(&path, format!("{}\n", self.text).as_bytes()).map_err(failed)?;
        let shown = path.display().to_string();
        app.ui.note(format!("token {} (in {} until this server stops)", self.text, crate::ui::printable(&shown)));
        Ok(TokenFile(path))
    }
}

/// A token in a file; removed when the server stops.
pub struct TokenFile(PathBuf);

impl TokenFile {
    /// Its place.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A file of the user's own for the token of the server at an address.
fn usual_place(address: SocketAddr) -> Result<PathBuf, Error> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
    let state = state.ok_or_else(|| {
        Error::invalid("there is no place for the token: neither XDG_STATE_HOME nor HOME is set")
            .hint("name a file with --token-file PATH, or a token with --token @env:VARIABLE")
    })?;
    let name = address.to_string().replace([':', '[', ']', '%'], "-");
    Ok(state.join("rekindle").join("tokens").join(name))
}
