//! `stockade policy`: make, check, show, explain and try profiles. Reads what an execution would read, through the
//! same survey and the same resolver; runs nothing.

use std::borrow::Cow;
use std::fs;
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use stockade_executor::survey::{self, Profiles};
use stockade_policy::{
    BUILT_IN, Place, ProfileError, ProfileText, Resolved, explain_profile, is_profile_name, render, resolve,
    resolve_text, show_profile,
};
use stockade_proto::{Bytes, Code, Fault, Refusal, exit};

use crate::policy_test::{self, TestCommand};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PolicyCommand {
    /// Write a commented starter profile
    Init {
        /// Into your own configuration (the default)
        #[arg(long, conflicts_with = "workspace")]
        user: bool,
        /// Into `.stockade` of the current directory; such a profile may only narrow
        #[arg(long)]
        workspace: bool,
        #[arg(default_value = "default")]
        name: String,
    },
    /// Check a profile by name or file; exit 125 with a picture of the mistake
    Check {
        #[arg(default_value = "default", value_name = "FILE|NAME")]
        target: String,
    },
    /// Print the resolved profile as TOML, each key with its origin
    Show {
        #[arg(default_value = "default")]
        name: String,
    },
    /// Tell in sentences what a profile allows and who decided it
    Explain {
        #[arg(default_value = "default")]
        name: String,
    },
    /// Tell what a profile decides about one socket or host; exit 0 allowed, 1 denied
    #[command(subcommand)]
    Test(TestCommand),
}

#[derive(Debug)]
pub(crate) enum PolicyFailure {
    Refused(Refusal),
    Fault(Fault),
}

impl From<Refusal> for PolicyFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ProfileError> for PolicyFailure {
    fn from(error: ProfileError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Fault> for PolicyFailure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Only for `out`: files carry their path and are refused by name.
impl From<io::Error> for PolicyFailure {
    fn from(error: io::Error) -> Self {
        Self::Fault(Fault::new(
            Code::OutputFailed,
            format!("the output could not be written: {error}"),
            "check where standard output goes",
        ))
    }
}

pub(crate) fn policy(command: PolicyCommand, out: &mut dyn Write) -> Result<u8, PolicyFailure> {
    let caller = survey::caller();
    let here = std::env::current_dir().map_or_else(|_| Bytes::from("."), Bytes::from);
    // Outside a workspace (in the home directory, say) there is no workspace profile to read.
    let workspace = survey::workspace(&here, &caller).ok();
    let profiles = Profiles::new(&caller, workspace.as_ref());
    match command {
        PolicyCommand::Init { user: _, workspace, name } => {
            let place = if workspace { Place::Workspace } else { Place::User };
            let file = init(&profiles, place, &name)?;
            writeln!(out, "wrote {}; `stockade policy check {name}` checks it", Bytes::from(file))?;
            Ok(0)
        }
        PolicyCommand::Check { target } => check(&target, &profiles, out),
        PolicyCommand::Show { name } => {
            write!(out, "{}", show_profile(&resolve(&name, &profiles)?))?;
            Ok(0)
        }
        PolicyCommand::Explain { name } => {
            write!(out, "{}", explain_profile(&resolve(&name, &profiles)?))?;
            Ok(0)
        }
        PolicyCommand::Test(command) => policy_test::test(&command, &caller, workspace.as_ref(), out),
    }
}

fn check(target: &str, profiles: &Profiles, out: &mut dyn Write) -> Result<u8, PolicyFailure> {
    let checked = if target.contains('/') || target.ends_with(".toml") {
        file_text(Path::new(target)).map_err(ProfileError::from).and_then(|text| resolve_text(text, profiles))
    } else {
        resolve(target, profiles)
    };
    match checked {
        Ok(profile) => {
            writeln!(out, "{}: valid{}", Bytes::from(target), sources_of(&profile))?;
            for warning in &profile.warnings {
                writeln!(out, "  mind: {warning}")?;
            }
            Ok(0)
        }
        Err(error) => {
            let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            write!(out, "{}", render(&error, colour))?;
            Ok(exit::REFUSED)
        }
    }
}

fn sources_of(profile: &Resolved) -> String {
    let files = profile.texts.iter().map(|text| text.file.to_string()).collect::<Vec<_>>();
    format!(" ({})", files.join(", then "))
}

/// A file named by hand. One in a `.stockade` directory is judged as the workspace's.
fn file_text(path: &Path) -> Result<ProfileText, Refusal> {
    let refuse = |why: String| {
        Refusal::new(
            Code::ProfileInvalid,
            format!("the profile `{}` {why}", Bytes::from(path)),
            "name a TOML file of at most 256 KiB",
        )
    };
    let name = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_profile_name(stem));
    let name = name.ok_or_else(|| refuse("has no name of letters, digits, `-` and `_`".to_owned()))?;
    let bytes = survey::read_profile(path).map_err(refuse)?;
    let text = String::from_utf8(bytes).map_err(|_| refuse("is not UTF-8".to_owned()))?;
    let in_workspace = path.canonicalize().is_ok_and(|real| {
        real.parent().and_then(Path::file_name).is_some_and(|directory| directory == ".stockade")
    });
    let place = if in_workspace { Place::Workspace } else { Place::User };
    Ok(ProfileText { place, name: name.to_owned(), file: Bytes::from(path), text: Cow::Owned(text) })
}

fn init(profiles: &Profiles, place: Place, name: &str) -> Result<PathBuf, Refusal> {
    let refuse = |message: String, remedy: &str| Refusal::new(Code::OptionInvalid, message, remedy);
    if !is_profile_name(name) {
        return Err(refuse(
            format!("`{}` is no name for a profile", Bytes::from(name)),
            "use letters, digits, `-` and `_`",
        ));
    }
    let directory = profiles.directory(place).ok_or_else(|| {
        refuse("the current directory can't be a workspace".to_owned(), "change to the project's directory")
    })?;
    let failed = |path: &Path, error: &io::Error| {
        let remedy = if error.kind() == io::ErrorKind::AlreadyExists {
            "it is not overwritten: edit it, or remove it first"
        } else {
            "make the directory writable, or choose the other place (--user, --workspace)"
        };
        refuse(format!("`{}` could not be created: {error}", Bytes::from(path)), remedy)
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&directory)
        .map_err(|error| failed(&directory, &error))?;
    let file = directory.join(format!("{name}.toml"));
    // Others must not be able to write a profile, or it is refused; 0644 whatever the umask leaves of it.
    let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&file);
    let text = starter(place, name);
    opened.and_then(|mut opened| opened.write_all(text.as_bytes())).map_err(|error| failed(&file, &error))?;
    Ok(file)
}

/// The built-in default with every line commented out: what it shows is what is in force.
fn starter(place: Place, name: &str) -> String {
    let mut text = match place {
        Place::Workspace => format!(
            "# Stockade profile `{name}` of this workspace. It is applied on top of the user's own profile of\n\
             # that name (or `default`) and may only narrow it: lower limits, more `deny`, fewer paths.\n\n"
        ),
        Place::User | Place::System | Place::BuiltIn => format!(
            "# Stockade profile `{name}`. Lines below are the built-in default's; take out the `#` of those that\n\
             # are to change. A list that is written here replaces the inherited one.\n\n\
             extends = \"default\"\n\n"
        ),
    };
    let default = BUILT_IN.iter().find(|(known, _)| *known == "default").map_or("", |(_, text)| text);
    for line in default.lines() {
        let lead = if line.is_empty() || line.starts_with('#') { "" } else { "# " };
        text.push_str(lead);
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoFiles;

    impl stockade_policy::Sources for NoFiles {
        fn find(&self, _: Place, _: &str) -> Result<Option<ProfileText>, Refusal> {
            Ok(None)
        }

        fn names(&self) -> Vec<String> {
            Vec::new()
        }
    }

    #[test]
    fn starters_are_valid_and_change_nothing() {
        for place in [Place::User, Place::Workspace] {
            let text = ProfileText {
                place,
                name: "mine".to_owned(),
                file: Bytes::from("mine.toml"),
                text: Cow::Owned(starter(place, "mine")),
            };
            let made = resolve_text(text, &NoFiles).expect("valid");
            let default = resolve("default", &NoFiles).expect("valid");
            assert_eq!(made.limits.map(|at| at.value), default.limits.map(|at| at.value));
            assert_eq!(made.fs.value, default.fs.value);
            assert_eq!(made.deny.value.len(), default.deny.value.len());
        }
    }

    #[test]
    fn check_draws_the_mistake_and_exits_125() {
        let directory = std::env::temp_dir().join(format!("stockade-policy-check-{}", std::process::id()));
        fs::create_dir(&directory).expect("directory");
        let file = directory.join("bad.toml");
        fs::write(&file, "netwrok = \"deny\"\n").expect("write");
        let caller = survey::caller();
        let profiles = Profiles::new(&caller, None);
        let mut out = Vec::new();
        let code = check(file.to_str().expect("utf-8"), &profiles, &mut out);
        fs::remove_dir_all(&directory).expect("clean");
        let code = code.expect("checked");
        let text = String::from_utf8(out).expect("utf-8");
        assert_eq!(code, exit::REFUSED);
        assert!(
            text.contains("bad.toml:1:1") && text.contains("^^^^^^^") && text.contains("`network`"),
            "{text}"
        );
    }
}
