//! Bearer tokens: 32 random bytes that are shown once. Only their hash is kept, so a copy of the database opens
//! no door.

use std::fmt;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::database::Database;
use crate::error::{StoreError, within};
use crate::{clock, hex, random, unlogged};

/// Marks a token for people and for scanners of leaked ones.
pub const PREFIX: &str = "stk_";
const NAME_LIMIT: usize = 128;
const SCOPE_LIMIT: usize = 64;
const SCOPES_LIMIT: usize = 32;
/// A use within this time of the last one is not written down: a busy client would write at each request.
const USE_STEP_MS: i64 = 60_000;

/// The public half of a token's text: 16 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct TokenId(String);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Token {
    pub id: TokenId,
    pub name: String,
    pub scopes: Vec<String>,
    pub created_ms: i64,
    /// To the minute.
    pub used_ms: Option<i64>,
    pub revoked_ms: Option<i64>,
}

/// The one time that its text is known.
#[derive(Debug)]
pub struct Created {
    pub id: TokenId,
    pub text: SecretString,
}

#[derive(Debug, Clone)]
pub struct Tokens {
    database: Database,
    /// Who changes them, where the audit log is still to be told.
    by: Option<String>,
}

impl Tokens {
    pub fn new(database: Database) -> Self {
        Self { database, by: None }
    }

    /// Each change leaves a note for the audit log.
    #[must_use]
    pub fn by(self, principal: impl Into<String>) -> Self {
        Self { by: Some(principal.into()), ..self }
    }

    pub fn create(&self, name: &str, scopes: &[&str]) -> Result<Created, StoreError> {
        check(name, scopes)?;
        let id = TokenId(hex::encode(&random::<8>()?[..]));
        let secret = Zeroizing::new(hex::encode(&random::<32>()?[..]));
        let text = Zeroizing::new(format!("{PREFIX}{id}_{}", *secret));
        let (hash, scopes) = (hash(&text), json!(scopes));
        let (key, name, by) = (id.0.clone(), name.to_owned(), self.by.clone());
        self.database.write("record a token", move |connection| {
            let sqlite = |error| StoreError::sqlite("record a token", error);
            let mut insert = connection
                .prepare_cached(
                    "INSERT INTO tokens (id, name, hash, scopes, created_ms) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT DO NOTHING",
                )
                .map_err(sqlite)?;
            let row = params![key, name, hash, scopes.to_string(), clock::now_ms()];
            if insert.execute(row).map_err(sqlite)? == 0 {
                return Err(StoreError::NameTaken { field: "token", name });
            }
            let body = json!({ "event": "create token", "name": name, "token": key, "scopes": scopes });
            unlogged::leave(connection, by.as_deref(), body)
        })?;
        Ok(Created { id, text: SecretString::from(text.as_str()) })
    }

    /// Whose token this text is. None for one that is unknown or revoked: a caller needs no more than that.
    pub fn check(&self, text: &str) -> Result<Option<Token>, StoreError> {
        let Some(id) = public_half(text) else { return Ok(None) };
        let found = self.database.read("look a token up", |reader| find(reader, id))?;
        let Some((token, expected)) = found else { return Ok(None) };
        let same = bool::from(hash(text).ct_eq(&expected));
        if !same || token.revoked_ms.is_some() {
            return Ok(None);
        }
        let now = clock::now_ms();
        if token.used_ms.is_none_or(|used| used.abs_diff(now) >= USE_STEP_MS.unsigned_abs()) {
            let id = id.to_owned();
            // A use that could not be written down is still a use.
            self.database.post("record a use", move |connection| {
                let update =
                    connection.execute("UPDATE tokens SET used_ms = ?2 WHERE id = ?1", params![id, now]);
                update.map(drop).map_err(|error| StoreError::sqlite("record a use", error))
            });
        }
        Ok(Some(token))
    }

    /// Oldest first, the revoked ones too.
    pub fn list(&self) -> Result<Vec<Token>, StoreError> {
        self.database.read("list tokens", |reader| {
            let mut select =
                reader.prepare_cached(&format!("{SELECT} ORDER BY created_ms, id LIMIT 10000"))?;
            let rows = select.query_map([], |row| from_row(row).map(|(token, _)| token))?;
            rows.collect()
        })
    }

    /// By id or by name. False if there is none that is not revoked.
    pub fn revoke(&self, id_or_name: &str) -> Result<bool, StoreError> {
        let (which, by) = (id_or_name.to_owned(), self.by.clone());
        self.database.write("revoke a token", move |connection| {
            let sqlite = |error| StoreError::sqlite("revoke a token", error);
            let mut update = connection
                .prepare_cached(
                    "UPDATE tokens SET revoked_ms = ?2 WHERE (id = ?1 OR name = ?1) AND revoked_ms IS NULL
                     RETURNING id, name",
                )
                .map_err(sqlite)?;
            let rows = update.query_map(params![which, clock::now_ms()], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            });
            let revoked: Vec<_> = rows.and_then(Iterator::collect).map_err(sqlite)?;
            for (id, name) in &revoked {
                let body = json!({ "event": "revoke token", "name": name, "token": id });
                unlogged::leave(connection, by.as_deref(), body)?;
            }
            Ok(!revoked.is_empty())
        })
    }
}

const SELECT: &str = "SELECT id, name, scopes, created_ms, used_ms, revoked_ms, hash FROM tokens";

fn from_row(row: &Row<'_>) -> rusqlite::Result<(Token, [u8; 32])> {
    let scopes: String = row.get(2)?;
    let scopes = serde_json::from_str(&scopes).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Text, Box::new(error))
    })?;
    let token = Token {
        id: TokenId(row.get(0)?),
        name: row.get(1)?,
        scopes,
        created_ms: row.get(3)?,
        used_ms: row.get(4)?,
        revoked_ms: row.get(5)?,
    };
    Ok((token, row.get(6)?))
}

fn find(reader: &Connection, id: &str) -> rusqlite::Result<Option<(Token, [u8; 32])>> {
    reader.prepare_cached(&format!("{SELECT} WHERE id = ?1"))?.query_row([id], from_row).optional()
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Not secret, so it may be looked up; the rest is compared in constant time.
fn public_half(text: &str) -> Option<&str> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    (id.len() == 16 && secret.len() == 64).then_some(id)
}

fn check(name: &str, scopes: &[&str]) -> Result<(), StoreError> {
    within("token's name", name, NAME_LIMIT)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(StoreError::Invalid {
            field: "token's name",
            rule: "it is empty or holds a control character",
        });
    }
    let word = |scope: &&str| {
        let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":.-*/".contains(&byte);
        !scope.is_empty() && scope.len() <= SCOPE_LIMIT && scope.bytes().all(known)
    };
    if scopes.is_empty() || scopes.len() > SCOPES_LIMIT || !scopes.iter().all(word) {
        let rule = "give 1 to 32 words of a-z, 0-9 and :.-*/";
        return Err(StoreError::Invalid { field: "token's scopes", rule });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    fn tokens() -> (tempfile::TempDir, Tokens) {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("db")).unwrap();
        (directory, Tokens::new(database))
    }

    #[test]
    fn a_token_opens_until_it_is_revoked() {
        let (directory, tokens) = tokens();
        let created = tokens.create("ci", &["execute", "read:*"]).unwrap();
        let text = created.text.expose_secret();
        let token = tokens.check(text).unwrap().unwrap();
        assert_eq!(
            (&token.name[..], &token.scopes[..]),
            ("ci", &["execute".to_owned(), "read:*".into()][..])
        );
        let mut other = text.to_owned();
        let last = if other.pop() == Some('0') { '1' } else { '0' };
        other.push(last);
        for wrong in [&other, "", "stk_", &text[4..], &text[..text.len() - 1], &format!("{text}0")] {
            assert_eq!(tokens.check(wrong).unwrap(), None, "{wrong}");
        }
        // A write that is waited for comes after the posted one.
        assert!(tokens.revoke("ci").unwrap());
        assert!(!tokens.revoke("ci").unwrap());
        assert_eq!(tokens.check(text).unwrap(), None);
        let listed = tokens.list().unwrap();
        assert!(listed[0].used_ms.is_some() && listed[0].revoked_ms.is_some());
        for file in std::fs::read_dir(directory.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let secret = text.rsplit('_').next().unwrap().as_bytes();
            assert!(!bytes.windows(secret.len()).any(|window| window == secret), "the text is kept");
        }
    }

    #[test]
    fn names_are_taken_once_and_words_are_checked() {
        let (_directory, tokens) = tokens();
        let first = tokens.create("ci", &["execute"]).unwrap();
        let again = tokens.create("ci", &["execute"]);
        assert!(matches!(again, Err(StoreError::NameTaken { .. })), "{again:?}");
        assert!(tokens.revoke(&first.id.to_string()).unwrap());
        assert!(tokens.create("ci", &["execute"]).is_ok());
        for (name, scopes) in [("", &["a"][..]), ("a\n", &["a"]), ("a", &[]), ("a", &["A b"])] {
            assert!(
                matches!(tokens.create(name, scopes), Err(StoreError::Invalid { .. })),
                "{name:?} {scopes:?}"
            );
        }
    }
}
