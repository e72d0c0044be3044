//! The keys that have one value: each can stand in the file, in the environment and in a flag.

/// A key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Its name, e.g. `run.durability`.
    pub name: &'static str,
    /// Its value if nothing says otherwise, for people.
    pub default: &'static str,
    /// What it is for.
    pub about: &'static str,
}

impl Key {
    /// The variable of the environment: `REKINDLE_RUN_DURABILITY`.
    pub fn variable(&self) -> String {
        format!("REKINDLE_{}", self.name.replace('.', "_").to_uppercase())
    }
}

const fn key(name: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { name, default, about }
}

/// Every key that has one value.
pub const KEYS: &[Key] = &[
    key("store", "sqlite:./rekindle.db", "where sessions are"),
    key("store_password", "", "the password of the store's server; a reference such as @env:PGPASSWORD"),
    key(
        "large_values",
        "",
        "where values go that are too large for the store: s3://…, gs://…, az://… or objects:./dir",
    ),
    key("large_values_from", "256KiB", "from which size on they go there"),
    key(
        "retry_for",
        "6s",
        "how long a request that the server of a store or bucket does not answer is made again; two fifths of a shorter lease",
    ),
    key("retry_attempts", "20", "how often such a request is made at most"),
    key(
        "marks",
        "true",
        "sqlite: and file: stores: whether marks beside the store show when it was set back to an older state",
    ),
    key("anchor", "", "where marks of any store are kept too: s3://…, gs://…, az://…, objects:, file: or sqlite:"),
    key("archive", "", "where archives are: s3://…, gs://…, az://… or objects:./dir"),
    key("namespace", "default", "whose sessions are meant"),
    key("author", "", "who is on record for what is done by hand; the user's name"),
    key("model", "", "the model for every agent, whatever its file says"),
    key(
        "idle_poll",
        "",
        "how seldom a run looks for messages and commands while none come; 5s on object storage, 250ms elsewhere",
    ),
    key("lease", "15s", "how long after a process dies until another may take its sessions over"),
    key("checkpoints.enabled", "true", "whether checkpoints are made by themselves"),
    key("checkpoints.auto_checkpoint", "true", "whether each step and each turn is marked"),
    key("checkpoints.max_checkpoints_per_session", "", "how many are kept when a run ends; all"),
    key("checkpoints.prune_after_days", "", "how old those may be that are kept beyond that"),
    key("checkpoints.compress_state", "true", "whether what is stored is compressed"),
    key("checkpoints.graph.on_node_start", "true", "graphs: before a node runs"),
    key("checkpoints.graph.on_node_complete", "true", "graphs: after a node has run"),
    key("checkpoints.graph.on_edge", "false", "graphs: before an edge is followed"),
    key("checkpoints.graph.on_loop_iteration", "false", "graphs: after each iteration of an agent in a node"),
    key("checkpoints.graph.every_n_iterations", "0", "graphs: after every so many of them"),
    key("checkpoints.graph.max_per_session", "100", "graphs: how many automatic ones are kept"),
    key("checkpoints.graph.prune_after_node_count", "10", "graphs: how often that is looked at"),
    key("checkpoints.graph.keep_clean_only", "false", "graphs: whether those after a failure go"),
    key("checkpoints.graph.async", "true", "graphs: whether the run goes on while a commit is written"),
    key("checkpoints.graph.include_conversations", "true", "graphs: whether conversations are shown"),
    key("checkpoints.graph.include_full_memory", "true", "graphs: whether the memory is shown"),
    key("checkpoints.graph.smart", "false", "graphs: only where it pays"),
    key("run.durability", "async", "when commits are on disk: sync, async, exit"),
    key("run.on_persist_failure", "halt", "when the store fails: halt, pause, degrade"),
    key("run.pending_writes", "true", "whether the outcome of each call is recorded on its own"),
    key("run.on_wait", "suspend", "when everything waits for somebody: suspend, hold"),
    key("run.on_damaged_inbox", "stop", "when records of a session's inbox cannot be read: stop, continue"),
    key("run.grace", "10s", "how long calls under way may take to end when a run is stopped"),
    key("server.token", "", "the token that clients over HTTP must know; a reference such as @env:REKINDLE_TOKEN"),
    key("encryption.key", "", "encrypts what is stored; a reference such as @file:store.key"),
    key("encryption.id", "default", "the id of that key"),
    key("signing.key", "", "signs what is stored; a reference"),
    key("signing.id", "default", "the id of that key"),
];
