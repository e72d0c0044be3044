//! PostgreSQL from the packages of the system.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex};

use crate::supervised::{Signal, Supervised, directory, free_port, wait_until};

/// A PostgreSQL server with a superuser `rekindle`, whose password is `secret`, and a database of
/// the same name. Connections over TCP need the password.
#[derive(Debug)]
pub struct Postgres {
    directory: PathBuf,
    port: u16,
    settings: Vec<String>,
    server: Mutex<Option<Supervised>>,
}

impl Postgres {
    /// The password of the superuser.
    pub const PASSWORD: &'static str = "secret";

    /// One for the whole process, quick rather than durable: for tests that do not stop it.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Postgres> =
            LazyLock::new(|| Postgres::start(&["fsync=off", "synchronous_commit=off", "max_connections=300"]));
        &SHARED
    }

    /// Starts a new one with `settings`, as in `postgresql.conf`.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is not installed or does not start.
    pub fn start(settings: &[&str]) -> Self {
        let directory = directory("rekindle-postgres-");
        std::fs::write(directory.join("password"), Self::PASSWORD).unwrap();
        if is_root() {
            let changed = Command::new("chown").args(["-R", "postgres"]).arg(&directory).status().unwrap();
            assert!(changed.success(), "there is no user `postgres`");
        }
        let data = directory.join("data").to_str().unwrap().to_owned();
        let password = format!("--pwfile={}", directory.join("password").display());
        let arguments = ["-D", &data, "-U", "rekindle", "-A", "scram-sha-256", &password, "-E", "UTF8", "--locale=C"];
        let command = as_postgres(&program("initdb"), &arguments.map(str::to_owned));
        let made = Command::new(&command[0]).args(&command[1..]).output().unwrap();
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let postgres = Self {
            directory,
            port: free_port(),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            server: Mutex::new(None),
        };
        postgres.restart();
        postgres.sql("CREATE DATABASE rekindle");
        postgres
    }

    /// Starts the server again after [`Postgres::kill`] or [`Postgres::stop`], on the same port.
    pub fn restart(&self) {
        let data = self.directory.join("data").to_str().unwrap().to_owned();
        let sockets = format!("unix_socket_directories={}", self.directory.display());
        let port = format!("port={}", self.port);
        let mut arguments = vec!["-D".to_owned(), data];
        let own = [sockets, port, "listen_addresses=127.0.0.1".to_owned()];
        for setting in own.iter().chain(&self.settings) {
            arguments.extend(["-c".to_owned(), setting.clone()]);
        }
        // SIGINT: end all connections, in good order.
        let server = Supervised::start(&self.directory, "INT", &as_postgres(&program("postgres"), &arguments));
        wait_until("PostgreSQL", &server, || self.psql("postgres", "SELECT 1").status().unwrap().success());
        *self.server.lock().unwrap() = Some(server);
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            server.signal(Signal::Kill);
            server.stop();
        }
    }

    /// Stops the server in good order.
    pub fn stop(&self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            server.stop();
        }
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(server) = &*self.server.lock().unwrap() {
            server.signal(signal);
        }
    }

    /// The URL of the database, with the password.
    pub fn url(&self) -> String {
        format!("postgres://rekindle:{}@127.0.0.1:{}/rekindle", Self::PASSWORD, self.port)
    }

    /// The port it listens on at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL as a superuser in the database `postgres`, if that is not made yet, else in ours.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn sql(&self, sql: &str) -> String {
        let database = if sql.starts_with("CREATE DATABASE") { "postgres" } else { "rekindle" };
        let output = self.psql(database, sql).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Where a program of the installed version is, e.g. `pgbench`.
    pub fn program(name: &str) -> PathBuf {
        program(name)
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut command = Command::new(program("psql"));
        command
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "rekindle", "-d", database, "-qAtX"])
            .args(["-v", "ON_ERROR_STOP=1", "-c", sql])
            .env("PGPASSWORD", Self::PASSWORD)
            .env("PGCONNECT_TIMEOUT", "5")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

/// The newest installed version of a program.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|version| {
            Some((version.file_name().to_str()?.parse().ok()?, version.path().join("bin").join(name)))
        })
        .filter(|(_, path)| path.exists())
        .collect();
    found.sort();
    found.pop().map_or_else(|| panic!("PostgreSQL is not installed: run scripts/servers"), |(_, path)| path)
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout.trim_ascii() == b"0"
}

/// A command as the user `postgres`, if this is root: the server refuses to be.
fn as_postgres(program: &std::path::Path, arguments: &[String]) -> Vec<String> {
    let mut command = Vec::new();
    if is_root() {
        command.extend(["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"].map(str::to_owned));
    }
    command.push(program.to_str().unwrap().to_owned());
    command.extend_from_slice(arguments);
    command
}
