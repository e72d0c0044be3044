//! Building a [`CommandTool`].

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rekindle::core::record::InDoubtPolicy;
use rekindle::tool::{ToolOptions, ToolSpec};
use rekindle::{Json, Result};
use serde_json::Value;

use super::fill::{shell_collision, variable};
use super::{CommandOutput, CommandTool, Feed, Stdin, What};
use crate::checks::{self, Faults};
use crate::process::is_variable;
use crate::template::Template;

/// A [`CommandTool`] that is not finished.
#[derive(Clone, Debug)]
#[must_use]
pub struct CommandToolBuilder {
    spec: ToolSpec,
    options: Option<ToolOptions>,
    command: Option<Vec<String>>,
    script: Option<String>,
    check: Option<Vec<String>>,
    dashes: bool,
    stdin: Stdin,
    base: BTreeMap<String, String>,
    environment: Vec<(String, String)>,
    directory: Option<PathBuf>,
    output: CommandOutput,
    limit: usize,
    accept: Vec<i32>,
    grace: Duration,
}

impl CommandToolBuilder {
    pub(super) fn new(name: String, description: String) -> Self {
        let parameters = Json::from(serde_json::json!({"type": "object", "properties": {}}));
        Self {
            spec: ToolSpec { name, description, parameters, version: None },
            options: None,
            command: None,
            script: None,
            check: None,
            dashes: false,
            stdin: Stdin::Nothing,
            base: BTreeMap::new(),
            environment: Vec::new(),
            directory: None,
            output: CommandOutput::Full,
            limit: 256 << 10,
            accept: Vec::new(),
            grace: Duration::from_secs(2),
        }
    }

    /// JSON Schema of its arguments; without it there are none.
    pub fn parameters(mut self, schema: Json) -> Self {
        self.spec.parameters = schema;
        self
    }

    /// The program and its arguments, each a text with references. No shell reads them.
    pub fn command(mut self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.command = Some(command.into_iter().map(Into::into).collect());
        self
    }

    /// A script for `sh -c`, instead of a command. It holds no references: the arguments of a call
    /// are variables, `REKINDLE_ARG_` and the name in capitals, and all of them as JSON in
    /// `REKINDLE_ARGUMENTS`. Write `"$REKINDLE_ARG_CITY"`, with the quotes.
    pub fn shell(mut self, script: impl Into<String>) -> Self {
        self.script = Some(script.into());
        self
    }

    /// Lets arguments begin with `-`. Otherwise a text that begins so is refused where the program
    /// could take it for an option: as an element of its own, before an element `--`.
    pub fn allow_leading_dashes(mut self) -> Self {
        self.dashes = true;
        self
    }

    /// What the program reads.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    /// Variables that are taken as they are: whatever the program needs of the environment of this
    /// process, such as `PATH`, `HOME` and `LANG`. Without `PATH`, programs are looked for in
    /// `/usr/local/bin`, `/usr/bin` and `/bin`.
    pub fn environment_base(
        mut self,
        variables: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Self {
        self.base.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// A variable, a text with references. Left out if it is one reference without a value.
    pub fn environment(mut self, variable: impl Into<String>, template: impl Into<String>) -> Self {
        self.environment.push((variable.into(), template.into()));
        self
    }

    /// A variable with a secret of the session. The program sees it; what it writes is searched for
    /// it before anything is stored.
    pub fn secret_environment(self, variable: impl Into<String>, secret: impl Into<String>) -> Self {
        let template = format!("${{secrets.{}}}", secret.into());
        self.environment(variable, template)
    }

    /// Where the program runs; without it, wherever this process does.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// What the result is.
    pub fn output(mut self, output: CommandOutput) -> Self {
        self.output = output;
        self
    }

    /// How many bytes are kept of what the program writes, to each of its outputs; of more than
    /// that, the beginning and the end. 256 KiB unless more is said.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Exit codes that are no failure, beside 0.
    pub fn accept_exit_codes(mut self, codes: impl IntoIterator<Item = i32>) -> Self {
        self.accept.extend(codes);
        self
    }

    /// A program that finds out whether a call happened, asked after a crash if the policy is
    /// `check`, which it is unless the options say otherwise. It is filled in like a command, has the
    /// variables that the tool has, reads nothing, and ends with
    ///
    /// * 0 if the call happened; what it writes is the result,
    /// * 3 if the call did not happen, so that it is made,
    /// * anything else if it cannot tell, so that a person is asked.
    pub fn check_command(mut self, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.check = Some(command.into_iter().map(Into::into).collect());
        self
    }

    /// How long a program has to end by itself when it is told to; two seconds unless more is said.
    pub fn kill_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Its version; a change is drift. A change of the command is not, as it may only be another
    /// way to do the same.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.spec.version = Some(version.into());
        self
    }

    /// What the engine must know; without it, that it writes.
    pub fn options(mut self, options: ToolOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// The tool. An error names everything that is wrong with it.
    pub fn build(self) -> Result<CommandTool> {
        let mut faults = Faults::default();
        let schema = checks::spec(&mut faults, &self.spec);
        let what = self.what(&mut faults, &schema);
        let check = self.check.as_ref().map(|command| argv(&mut faults, "check_command", command, &schema));
        let stdin = match &self.stdin {
            Stdin::Nothing => Feed::Nothing,
            Stdin::Arguments => Feed::Arguments,
            Stdin::Text(text) => Feed::Text(faults.template("stdin", text, false, &schema)),
        };
        let environment = self.variables(&mut faults, &schema);
        let mut options = self.options.unwrap_or(ToolOptions { writes: true, ..ToolOptions::default() });
        if check.is_some() && options.in_doubt.is_none() {
            options.in_doubt = Some(InDoubtPolicy::Check);
        }
        checks::options(&mut faults, &options, check.is_some(), "a `check_command`");
        faults.check(self.limit > 0, || "the limit of its output is 0".to_owned());
        faults.into_result("tool", &self.spec.name)?;
        Ok(CommandTool {
            spec: self.spec,
            options,
            what,
            check,
            dashes: self.dashes,
            stdin,
            base: self.base,
            secrets: Template::secrets(environment.iter().map(|(_, template)| template)),
            environment,
            directory: self.directory,
            output: self.output,
            limit: self.limit,
            accept: self.accept,
            grace: self.grace,
        })
    }

    fn what(&self, faults: &mut Faults, schema: &Value) -> What {
        match (&self.command, &self.script) {
            (Some(command), None) => What::Command(argv(faults, "command", command, schema)),
            (None, Some(script)) => {
                faults.check(!script.trim().is_empty(), || "the script is empty".to_owned());
                faults.check(!script.contains('\0'), || "the script has a NUL in it".to_owned());
                if let Some((one, other)) = shell_collision(schema) {
                    faults.add(format!("parameters `{one}` and `{other}` are both `{}`", variable(one)));
                }
                What::Shell(script.clone())
            }
            (Some(_), Some(_)) => {
                faults.add("it has both a command and a script");
                What::Command(Vec::new())
            }
            (None, None) => {
                faults.add("it has neither a command nor a script");
                What::Command(Vec::new())
            }
        }
    }

    fn variables(&self, faults: &mut Faults, schema: &Value) -> Vec<(String, Template)> {
        for name in self.base.keys().chain(self.environment.iter().map(|(name, _)| name)) {
            faults.check(is_variable(name), || format!("`{name}` is no name of a variable"));
        }
        let read = |(name, text): &(String, String)| {
            (name.clone(), faults.template(&format!("variable `{name}`"), text, true, schema))
        };
        self.environment.iter().map(read).collect()
    }
}

fn argv(faults: &mut Faults, place: &str, command: &[String], schema: &Value) -> Vec<Template> {
    let program = command.first().map(String::as_str).unwrap_or_default();
    faults.check(!program.trim().is_empty(), || format!("{place}: there is no program"));
    // What runs is for whoever declares the tool to say, not for the model.
    faults.check(Template::parse(program).is_ok_and(|program| program.plain().is_some()), || {
        format!("{place}: the program itself cannot be a reference")
    });
    command.iter().map(|text| faults.template(place, text, false, schema)).collect()
}
