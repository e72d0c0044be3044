//! `rekindle version`: which version this is, and what is in it.

use clap::Args;
use rekindle::core::EXPORT_VERSION;
use rekindle::core::codec::FORMAT_VERSION;
use serde::Serialize;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Outcome;
use crate::ui::style;

/// Nothing to say.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rekindle version --json")]
pub struct Arguments {}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    target: String,
    build: &'static str,
    /// The schemes of the stores in this build.
    stores: Vec<&'static str>,
    protection: [&'static str; 3],
    /// The newest forms this build reads; it writes them too.
    formats: Formats,
}

#[derive(Serialize)]
struct Formats {
    frame: u8,
    export: u32,
}

impl Arguments {
    /// Says it.
    pub async fn run(self, app: &App) -> Outcome {
        let version = Version {
            version: env!("CARGO_PKG_VERSION"),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            stores: rekindle_store::schemes(),
            protection: ["compression", "encryption", "signing"],
            formats: Formats { frame: FORMAT_VERSION, export: EXPORT_VERSION },
        };
        if app.ui.is_json() {
            app.ui.json(&version)?;
            return Ok(Exit::Ok);
        }
        app.ui.line(format!("{}rekindle {}{}", style::BOLD, version.version, style::RESET))?;
        app.ui.line(format!("target      {} ({})", version.target, version.build))?;
        app.ui.line(format!("stores      {}", version.stores.join(", ")))?;
        app.ui.line(format!("protection  {}", version.protection.join(", ")))?;
        app.ui.line(format!("formats     frame {}, export {}", version.formats.frame, version.formats.export))?;
        Ok(Exit::Ok)
    }
}
