//! `stockade token`: bearer tokens for the HTTP door. A token's text is shown once, when it is made.

use clap::Subcommand;
use secrecy::ExposeSecret as _;
use stockade_executor::Abort;
use stockade_store::Tokens;
use stockade_store::tokens::Token;
use zeroize::Zeroizing;

use super::output::{self, Reader};
use super::state::{Missing, StateOption, log_changes, me, store_failed};
use super::text::{self, clean, moment};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it, this once
    Create {
        /// What the records call its holder
        name: String,
        /// What its holder may do; give it more than once for more
        #[arg(long, required = true, value_name = "SCOPE")]
        scope: Vec<Scope>,
        #[command(flatten)]
        at: StateOption,
    },
    /// List the tokens, without what only their holders know
    List {
        /// One JSON object per line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        at: StateOption,
    },
    /// Take a token back; it opens nothing from now on
    Revoke {
        /// As `stockade token list` shows it
        #[arg(value_name = "NAME|ID")]
        which: String,
        #[command(flatten)]
        at: StateOption,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scope {
    /// Start executions, and read, feed and stop one's own
    Execute,
    /// Read one's own executions
    Read,
    /// Read, feed and stop anybody's
    Admin,
}

impl Scope {
    const fn name(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

pub(super) fn token(command: &TokenCommand) -> Result<u8, Abort> {
    match command {
        TokenCommand::Create { name, scope, at } => create(name, scope, at),
        TokenCommand::List { json, at } => {
            let (_, database) = at.open(Missing::Refuse)?;
            list(&Tokens::new(database).list().map_err(store_failed)?, *json)
        }
        TokenCommand::Revoke { which, at } => revoke(which, at),
    }
}

fn create(name: &str, scopes: &[Scope], at: &StateOption) -> Result<u8, Abort> {
    let (directory, database) = at.open(Missing::Make)?;
    let mut words: Vec<&str> = Vec::new();
    for scope in scopes {
        if !words.contains(&scope.name()) {
            words.push(scope.name());
        }
    }
    let tokens = Tokens::new(database.clone()).by(me());
    let created = tokens.create(name, &words).map_err(store_failed)?;
    let line = Zeroizing::new(format!("{}\n", created.text.expose_secret()));
    let printed = match output::print(&line) {
        Ok(Reader::There) => Ok(0),
        failed => {
            // Nobody has it, and its name is not to be lost to it.
            tokens.revoke(&created.id.to_string()).map_err(store_failed)?;
            match failed {
                Ok(_) => Err(output::failed(&std::io::ErrorKind::BrokenPipe.into()).into()),
                Err(abort) => Err(abort),
            }
        }
    };
    log_changes(&directory, database);
    printed
}

fn list(tokens: &[Token], json: bool) -> Result<u8, Abort> {
    if !json {
        return output::print(&table(tokens)).map(|_| 0);
    }
    for token in tokens {
        if output::print_json(token)? == Reader::Gone {
            break;
        }
    }
    Ok(0)
}

fn table(tokens: &[Token]) -> String {
    let row = |token: &Token| {
        let state = token.revoked_ms.map(|at| format!("revoked {}", moment(at)));
        [
            token.id.to_string(),
            clean(&token.name),
            clean(&token.scopes.join(",")),
            moment(token.created_ms),
            token.used_ms.map_or_else(|| "never".to_owned(), moment),
            state.unwrap_or_else(|| "valid".to_owned()),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    text::table(["ID", "NAME", "SCOPES", "CREATED", "USED", "STATE"], &rows, None)
}

fn revoke(which: &str, at: &StateOption) -> Result<u8, Abort> {
    let (directory, database) = at.open(Missing::Refuse)?;
    if Tokens::new(database.clone()).by(me()).revoke(which).map_err(store_failed)? {
        log_changes(&directory, database);
        return Ok(0);
    }
    Err(super::bad_option(
        format!("there is no valid token `{}`", clean(which)),
        "`stockade token list` shows the names and ids of those that are valid.",
    )
    .into())
}
