//! What every command works with: the settings, the store, the author.

use std::path::Path;
use std::sync::Arc;

use rekindle::core::codec::Codec;
use rekindle::{Engine, Error, ErrorKind, Identity, Journal, Namespace, Result, SessionKey};
use rekindle_store::private::Modes;
use rekindle_store::{SystemClock, shown_url, system_ids};

use crate::cli::{Cli, Global};
use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::owner;
use crate::reference::{self, Moment};
use crate::secrets::{NamedSecrets, masks};
use crate::settings::{KEYS, Key, Refused, Settings, is_remote};
use crate::ui::{Ui, style};
use crate::words::next;

/// What every command works with.
#[derive(Clone, Debug)]
pub struct App {
    pub ui: Ui,
    pub global: Global,
    pub settings: Arc<Settings>,
    /// The secrets that runs may look up.
    pub secrets: NamedSecrets,
}

/// Whether a command needs a store that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It looks at or changes what is there: a typo in a path never makes an empty store.
    Existing,
    /// It may be the first.
    Create,
}

/// Runs a command.
pub fn start(cli: Cli, ui: Ui) -> Outcome {
    let on_refused = if cli.command.needs_no_configuration() { Refused::LeaveOut } else { Refused::Fail };
    let settings = Settings::load(&cli.global, on_refused)?;
    let app = App { ui, global: cli.global, settings: Arc::new(settings), secrets: NamedSecrets::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::new(ErrorKind::Unsupported, "no threads can be started").because(error))?;
    app.warn_of_variables();
    let outcome = runtime.block_on(cli.command.run(&app)).map_err(|failure| of_the_dead(&app, failure));
    // A tool that does not end must not keep the program: what it did is in doubt, and on record.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    outcome
}

impl App {
    /// The engine over the store.
    pub fn engine(&self, access: Access) -> Result<Engine> {
        self.engine_at(&self.settings.store_url(), access)
    }

    /// The engine over a store whose queue other processes share, or that says itself that it has none.
    pub fn queueing_engine(&self) -> Result<Engine> {
        let engine = self.engine(Access::Create)?;
        let store = engine.journal().store();
        if store.queue().is_some() && !store.capabilities().multi_process {
            return Err(Error::new(ErrorKind::Unsupported, "this queue would end with this command")
                .hint("use a store that other processes see: sqlite:, postgres: or redis:"));
        }
        Ok(engine)
    }

    /// The engine over the store at `url`.
    pub fn engine_at(&self, url: &str, access: Access) -> Result<Engine> {
        if access == Access::Create {
            prepare(url);
        }
        let mut options = self.settings.store_options(url, access == Access::Create)?;
        let shifted = clock::shifted()?;
        // A store on a server goes by the server's clock.
        if let Some(clock) = shifted.clone().filter(|_| !is_remote(url)) {
            options = options.with_clock(clock);
        }
        let store = match rekindle_store::open(url, options.clone()) {
            // What may not be written can still be looked at; changes are refused, and say why.
            Err(error) if access == Access::Existing && *error.kind() == ErrorKind::PersistFailed => {
                rekindle_store::open(url, options.with_read_only(true))
            }
            other => other,
        }
        .map_err(|error| explained(error, url))?;
        let codec = self.settings.codec(Codec::new(), store.capabilities().compress_from)?;
        let journal = Journal::new(store, codec, shifted.unwrap_or_else(|| Arc::new(SystemClock)), system_ids()?);
        let mut engine = Engine::with_journal(journal)
            .with_secrets(self.secrets.clone())
            .with_masks(masks().clone())
            .with_owner(owner::this_process())
            .with_dead_owners(owner::is_dead)
            .in_namespace(self.namespace()?);
        for (name, reference) in self.settings.secrets()? {
            self.secrets.allow(&name, &reference);
            engine = engine.with_secret(name, reference);
        }
        if let Some(lease) = self.settings.lease() {
            engine = engine.with_lease(lease);
        }
        if let Some(most) = self.settings.idle_poll() {
            engine = engine.with_idle_poll(most);
        }
        if let Some(config) = self.settings.graph_checkpoints() {
            engine = engine.with_checkpoint_config(config.clone());
        }
        Ok(engine)
    }

    /// A variable that is almost a key of the configuration was meant as one.
    fn warn_of_variables(&self) {
        for name in self.settings.strange_variables() {
            let like = |key: &&Key| strsim::jaro_winkler(&key.variable(), name) > 0.95;
            if let Some(key) = KEYS.iter().find(like) {
                let (warn, reset, key) = (style::WARN, style::RESET, key.variable());
                self.ui.remark(format!("{warn}note:{reset} ${name} means nothing; did you mean ${key}?"));
            }
        }
    }

    /// Whose sessions are meant.
    pub fn namespace(&self) -> Result<Namespace> {
        match self.settings.namespace() {
            Some(name) => Namespace::new(name),
            None => Ok(Namespace::default()),
        }
    }

    /// Who does what is done.
    pub fn author(&self) -> String {
        self.settings.author()
    }

    /// Returns the author of what is done, and what is known of them: the system knows the user, the name is what the
    /// environment or the configuration says.
    pub fn identity(&self) -> Identity {
        Identity::claimed(self.author(), owner::credential_of(rustix::process::geteuid().as_raw()))
    }

    /// The session a person means.
    pub async fn session(&self, engine: &Engine, text: &str) -> Result<SessionKey, Failure> {
        Ok(reference::session(engine, text).await?)
    }

    /// The moment of a session a person means.
    pub async fn moment(&self, engine: &Engine, text: &str) -> Result<Moment, Failure> {
        Ok(reference::moment(engine, text, None).await?)
    }
}

/// What another process has, which has died, can be gone on with at once.
fn of_the_dead(app: &App, failure: Failure) -> Failure {
    match failure {
        Failure::Error(error) if owner::has_died(&error) => Failure::Error(next::explained(app, error)),
        failure => failure,
    }
}

/// Makes the folder of a new database. What cannot be made, opening the store reports.
fn prepare(url: &str) {
    let Some(path) = url.strip_prefix("sqlite:").map(|path| Path::new(path.strip_prefix("//").unwrap_or(path))) else {
        return;
    };
    if let Some(folder) = path.parent() {
        let _ = Modes::PRIVATE.create_dir_all(folder);
    }
}

/// What to do if there is no store, or none of that kind.
fn explained(error: Error, url: &str) -> Error {
    let shown = shown_url(url);
    match error.kind() {
        ErrorKind::NotFound if is_remote(url) => Error::not_found(format!("there is no store at {shown} yet"))
            .because(error)
            .during("open store")
            .hint("run something first, which makes it, or name another store with --store"),
        ErrorKind::NotFound => Error::not_found(format!("there is no store at {shown}"))
            .during("open store")
            .hint("run something first (`rekindle demo`, `rekindle run FILE`), or name another store with --store"),
        ErrorKind::Invalid => match meant_scheme(url) {
            Some((meant, all)) => error.hint(format!("did you mean {meant}:? There are {all}")),
            None => error,
        },
        _ => error,
    }
}

/// The scheme that was perhaps meant by one that does not exist, and all there are.
fn meant_scheme(url: &str) -> Option<(&'static str, String)> {
    let (scheme, _) = url.split_once(':')?;
    let all = rekindle_store::schemes();
    let alike = |known: &str| strsim::jaro_winkler(known, scheme);
    let nearest = all.iter().copied().max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    let all: Vec<String> = all.iter().map(|scheme| format!("{scheme}:")).collect();
    (nearest != scheme && alike(nearest) > 0.75).then(|| (nearest, all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::meant_scheme;

    #[test]
    fn a_typo_in_a_scheme_names_the_one_that_was_meant() {
        for (url, meant) in
            [("sqllite:a.db", Some("sqlite")), ("files:./x", Some("file")), ("xyz:1", None), ("a", None)]
        {
            assert_eq!(meant_scheme(url).map(|(meant, _)| meant), meant, "{url}");
        }
        assert!(meant_scheme("sqlite:").is_none());
    }
}
