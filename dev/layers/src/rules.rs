//! The rules: allowed dependencies between crates and between modules. `docs/architecture.md` has the picture.

/// The published crates, lower ones first, each with those of ours that its code may use. Their tests may use more.
pub const CRATES: &[(&str, &[&str])] = &[
    ("rekindle-core", &[]),
    ("rekindle-store", &["rekindle-core"]),
    ("rekindle-testkit", &["rekindle-core"]),
    ("rekindle", &["rekindle-core", "rekindle-store"]),
    // Front ends: they use the engine, and each other only where files name models and tools.
    ("rekindle-import", &["rekindle"]),
    ("rekindle-models", &["rekindle"]),
    ("rekindle-tools", &["rekindle"]),
    ("rekindle-definitions", &["rekindle", "rekindle-models", "rekindle-tools"]),
    ("rekindle-mcp", &["rekindle"]),
    ("rekindle-server", &["rekindle"]),
    // The composition root.
    (
        "rekindle-cli",
        &[
            "rekindle",
            "rekindle-store",
            "rekindle-import",
            "rekindle-models",
            "rekindle-tools",
            "rekindle-definitions",
            "rekindle-mcp",
            "rekindle-server",
        ],
    ),
];

/// Names of protocols and of the crates that speak them: as dependencies and in paths they appear only in these crates.
pub const PROTOCOLS: &[Protocol] = &[
    Protocol { names: &["ag_ui"], crates: &["rekindle-server"] },
    // Server, transport, client; tools of MCP servers in files; the program that serves and installs.
    Protocol {
        names: &["mcp", "rmcp"],
        crates: &["rekindle-mcp", "rekindle-server", "rekindle-tools", "rekindle-definitions", "rekindle-cli"],
    },
    Protocol { names: &["axum", "hyper", "hyper_util", "http_body_util"], crates: &["rekindle-server"] },
    Protocol { names: &["clap", "clap_complete", "clap_mangen"], crates: &["rekindle-cli"] },
];

/// A protocol and the crates that know it.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Segments of paths, and names of packages with `_` for `-`.
    pub names: &'static [&'static str],
    /// The crates that may name it.
    pub crates: &'static [&'static str],
}

/// Modules that stand above others of their crate.
pub const UPPER: &[Upper] = &[
    // Operations compose the driver and its executors; workers call operations.
    Upper { within: "rekindle", module: "operations", users: &["operations", "worker"] },
    Upper { within: "rekindle", module: "worker", users: &["worker"] },
    // The driver and operations know no executor by name: they ask its descriptor.
    Upper { within: "rekindle", module: "executor::agent", users: EXECUTOR_USERS },
    Upper { within: "rekindle", module: "executor::flow", users: EXECUTOR_USERS },
    Upper { within: "rekindle", module: "executor::graph", users: EXECUTOR_USERS },
    Upper { within: "rekindle", module: "executor::plan", users: EXECUTOR_USERS },
];

/// Besides executors: the work of workers, the loop that middleware sees, and the stored forms that secrets are looked for
/// in.
const EXECUTOR_USERS: &[&str] = &["executor", "worker", "middleware", "secret"];

/// A module that only some modules of its crate may use. The root of the crate may always name it.
#[derive(Clone, Copy, Debug)]
pub struct Upper {
    /// The crate.
    pub within: &'static str,
    /// The module, such as `executor::agent`; what is in it counts too.
    pub module: &'static str,
    /// Modules that may use it, with everything in them.
    pub users: &'static [&'static str],
}

/// Items of `rekindle-store` that the engine may use: it sees stores through the traits of `rekindle-core` alone.
pub const STORE_ITEMS: &[&str] = &[
    // Opening by URL, with the clock and the randomness of the system.
    "open",
    "StoreOptions",
    "SystemClock",
    "system_ids",
    // The order of commits, over any store.
    "BranchWriter",
    "WriterOptions",
    "Watermark",
    // The place of archives.
    "Bucket",
];
