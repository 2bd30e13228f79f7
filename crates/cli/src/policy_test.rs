//! `stockade policy test`: what a profile would decide about one socket or one host, and which of its lines
//! decides. Asks the rules that an execution would ask; connects to nothing. Exit 0 allowed, 1 denied.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use stockade_executor::survey::{self, Profiles};
use stockade_policy::{
    Bound, Caller, DEFAULT_PORTS, EgressRules, EgressVerdict, Object, Reach, Resolved, SocketAddress,
    SocketGround, SocketRules, egress_plan, guidance_for_host, guidance_for_socket, home_inside, host_reason,
    needed_sockets, resolve, socket_plan, socket_reason, wants_registries,
};
use stockade_proto::{Bytes, Code, Decision, Fault, Mode, Origin, Refusal, SocketOperation, exit};

use crate::policy_command::PolicyFailure;

/// Not one of a refusal's: a denial is the answer to the question.
const DENIED: u8 = 1;
const _: () = assert!(DENIED != exit::REFUSED && DENIED != exit::FAULT);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TestCommand {
    /// A call on a Unix socket
    Unix {
        /// connect, bind, listen or send
        #[arg(value_parser = operation)]
        operation: SocketOperation,
        /// A path, or @NAME for an abstract name
        #[arg(value_name = "PATH|@NAME")]
        address: OsString,
        /// As if the command had bound it itself
        #[arg(long)]
        own: bool,
        #[command(flatten)]
        how: How,
    },
    /// A connection to a host
    Net {
        /// A name or an address, with a port (443 where there is none)
        #[arg(value_name = "HOST[:PORT]")]
        target: String,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct How {
    #[arg(long, default_value = "default")]
    profile: String,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

fn operation(text: &str) -> Result<SocketOperation, String> {
    SocketOperation::ALL
        .into_iter()
        .find(|operation| operation.name() == text)
        .ok_or_else(|| "it is one of connect, bind, listen, send".to_owned())
}

/// The answer, in words that scripts can rely on.
#[derive(Debug, Serialize)]
struct Answer {
    decision: Decision,
    /// None where no rule matched, or the profile has none to ask.
    rule: Option<String>,
    origin: Option<Box<Origin>>,
    message: Option<String>,
    reason: String,
    /// The lines that would allow it.
    guidance: Option<String>,
    warnings: Vec<String>,
}

impl Answer {
    fn without_rule(decision: Decision, reason: impl Into<String>) -> Self {
        let (rule, origin, message, guidance) = (None, None, None, None);
        Self { decision, rule, origin, message, reason: reason.into(), guidance, warnings: Vec::new() }
    }
}

pub(crate) fn test(
    command: &TestCommand,
    caller: &Caller,
    workspace: Option<&Object>,
    out: &mut dyn Write,
) -> Result<u8, PolicyFailure> {
    let (TestCommand::Unix { how, .. } | TestCommand::Net { how, .. }) = command;
    let profile = resolve(&how.profile, &Profiles::new(caller, workspace))?;
    let written = survey::written_under(&profile, caller, workspace)?;
    let answer = match command {
        TestCommand::Unix { operation, address, own, .. } => {
            let bound = if *own { Bound::Here } else { Bound::Elsewhere };
            socket(
                &profile,
                caller,
                workspace,
                &Call { operation: *operation, address, bound, written: &written },
            )?
        }
        TestCommand::Net { target, .. } => host(&profile, caller, target, &written)?,
    };
    if how.json {
        let json = serde_json::to_string(&answer).map_err(|error| {
            PolicyFailure::from(Fault::new(
                Code::OutputFailed,
                format!("no JSON: {error}"),
                "leave --json out",
            ))
        })?;
        writeln!(out, "{json}")?;
    } else {
        write!(out, "{}", show(&answer))?;
    }
    Ok(if answer.decision == Decision::Deny { DENIED } else { 0 })
}

fn show(answer: &Answer) -> String {
    let verdict = match answer.decision {
        Decision::Allow => "allowed",
        Decision::Deny => "denied",
        Decision::Audit => "allowed and recorded",
    };
    let mut text = format!("{verdict}: {}\n", answer.reason);
    for warning in &answer.warnings {
        text.push_str(&format!("  mind: {warning}\n"));
    }
    if let Some(guidance) = &answer.guidance {
        text.push_str("to allow it, add to a profile of your own:\n\n");
        for line in guidance.lines() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}

struct Call<'c> {
    operation: SocketOperation,
    address: &'c OsStr,
    bound: Bound,
    /// Directories that commands can write.
    written: &'c [PathBuf],
}

fn socket(
    profile: &Resolved,
    caller: &Caller,
    workspace: Option<&Object>,
    call: &Call<'_>,
) -> Result<Answer, PolicyFailure> {
    let needed = needed_sockets(profile, caller)?;
    let found = survey::look_at_sockets(&needed, call.written, caller.uid);
    let home = home_inside(profile, caller);
    let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let workspace = workspace.map_or_else(|| Bytes::from(here.as_path()), |workspace| workspace.path.clone());
    let ground = SocketGround { caller, home: &home, workspace: &workspace, found: &found };
    let Some(plan) = socket_plan(profile, &ground)? else {
        let reason = "this profile does not watch Unix sockets";
        return Ok(Answer::without_rule(Decision::Allow, reason));
    };
    let rules = SocketRules::compile(&plan).map_err(|error| {
        PolicyFailure::from(Fault::new(Code::SetupFailed, error.to_string(), "report this as a bug"))
    })?;
    let bytes = call.address.as_bytes();
    let real = real_path(&here.join(call.address));
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddress::Abstract(name),
        None => SocketAddress::Path(real.as_os_str().as_bytes()),
    };
    let identity = |path: &Path| fs::metadata(path).ok().map(|stat| (stat.dev(), stat.ino()));
    let asked = identity(&real);
    let same_object =
        |literal: &[u8]| asked.is_some() && identity(Path::new(OsStr::from_bytes(literal))) == asked;
    let verdict = rules.decide(call.operation, address, call.bound, &same_object);
    let denies = verdict.decision == Decision::Deny;
    Ok(Answer {
        decision: verdict.decision,
        rule: verdict.rule.map(|rule| rule.name.clone()),
        origin: verdict.rule.and_then(|rule| rule.origin.clone()),
        message: verdict.rule.and_then(|rule| rule.message.clone()),
        reason: socket_reason(call.operation, address, &verdict),
        guidance: denies
            .then(|| guidance_for_socket(call.operation, address))
            .filter(|text| !text.is_empty()),
        warnings: Vec::new(),
    })
}

/// Decisions are made on resolved paths. Of one that does not exist, as much as does.
fn real_path(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_path_buf()
}

fn host(
    profile: &Resolved,
    caller: &Caller,
    target: &str,
    written: &[PathBuf],
) -> Result<Answer, PolicyFailure> {
    let (host, port) = split(target).ok_or_else(|| {
        Refusal::new(
            Code::OptionInvalid,
            format!("`{}` is no host and port", Bytes::from(target)),
            "write example.org:443, 203.0.113.7:443 or [2001:db8::1]:443",
        )
    })?;
    if profile.mode.value == Mode::Host || profile.network.value == Reach::Inherit {
        return Ok(Answer::without_rule(Decision::Allow, "this profile gives the host's own network"));
    }
    if profile.network.value == Reach::Deny {
        let mut answer = Answer::without_rule(Decision::Deny, "this profile has no network");
        answer.guidance = host_guidance(host, port);
        return Ok(answer);
    }
    let mut warnings = Vec::new();
    let asked = if wants_registries(profile) {
        survey::registries(caller, written)
    } else {
        survey::Asked::default()
    };
    warnings.extend(asked.warnings);
    let rules = EgressRules::compile(&egress_plan(profile, &asked.registries, &mut warnings));
    let verdict = match host.parse::<IpAddr>() {
        Ok(address) => rules.address_port(address, port),
        Err(_) => rules.name_port(host, port),
    };
    let (rule, origin) = match &verdict {
        EgressVerdict::Allowed(target) => (Some(target.rule.clone()), target.origin.clone()),
        EgressVerdict::Unlisted | EgressVerdict::OtherPort(_) | EgressVerdict::Closed(_) => (None, None),
    };
    let allowed = verdict.is_allowed();
    Ok(Answer {
        decision: if allowed { Decision::Allow } else { Decision::Deny },
        rule,
        origin,
        message: None,
        reason: host_reason(host, Some(port), &verdict),
        guidance: if allowed { None } else { host_guidance(host, port) },
        warnings,
    })
}

/// None where no entry could be written, as for the resolver's port.
fn host_guidance(host: &str, port: u16) -> Option<String> {
    Some(guidance_for_host(host, Some(port))).filter(|lines| !lines.is_empty())
}

fn split(target: &str) -> Option<(&str, u16)> {
    let [_, https] = DEFAULT_PORTS;
    if target.parse::<IpAddr>().is_ok() {
        return Some((target, https));
    }
    let (host, port) = match target.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<IpAddr>().ok()?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => target.split_once(':').map_or((target, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(https), |port| port.parse().ok().filter(|port| *port != 0))?;
    let plain = host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/@*?#[]".contains(&byte));
    (!host.is_empty() && plain).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        for (target, expected) in [
            ("a.example", Some(("a.example", 443))),
            ("a.example:80", Some(("a.example", 80))),
            ("10.0.0.1:5432", Some(("10.0.0.1", 5432))),
            ("::1", Some(("::1", 443))),
            ("[::1]:80", Some(("::1", 80))),
            ("[::1]", Some(("::1", 443))),
            ("", None),
            (":80", None),
            ("a.example:0", None),
            ("a.example:x", None),
            ("https://a.example", None),
            ("[a.example]:80", None),
            ("[::1]x", None),
            ("*.example", None),
        ] {
            assert_eq!(split(target), expected, "{target}");
        }
    }

    #[test]
    fn operations_are_named() {
        assert_eq!(operation("send"), Ok(SocketOperation::Send));
        assert!(operation("Connect").is_err());
    }
}
