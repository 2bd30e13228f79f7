//! Secrets at rest: XChaCha20-Poly1305, each value bound to its name. Names can be listed, values only be taken one
//! by one by whoever may hand them out.

mod key;

use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use rusqlite::{Connection, OptionalExtension as _, params};
use secrecy::{ExposeSecret as _, SecretSlice};
use serde::Serialize;
use serde_json::json;
use zeroize::Zeroizing;

use crate::database::Database;
use crate::error::{StoreError, within};
use crate::{clock, random, unlogged};

const NAME_LIMIT: usize = 128;
/// A key, a token, a certificate with its chain.
pub const VALUE_LIMIT: usize = 64 << 10;
/// Goes into every seal, so that one of another kind or of a later format is never taken for it.
const CONTEXT: &[u8] = b"stockade secret 1\0";

/// What may be shown of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretName {
    pub name: String,
    pub created_ms: i64,
    pub updated_ms: i64,
}

#[derive(Debug, Clone)]
pub struct Secrets {
    database: Database,
    key: Key,
    /// Who changes them, where the audit log is still to be told.
    by: Option<String>,
}

/// Where the key is. It is read for each use: no key stays in memory.
#[derive(Debug, Clone)]
enum Key {
    File(PathBuf),
    /// Of systemd's, for the service alone.
    Credential(PathBuf),
}

impl Secrets {
    /// The key file is made when the first secret is set.
    pub fn new(database: Database, key_file: &Path) -> Self {
        Self { database, key: Key::File(key_file.to_owned()), by: None }
    }

    /// For a service without a credential: the key is in its file, whatever there was before.
    pub(crate) fn with_file(database: Database, key_file: &Path) -> Result<Self, StoreError> {
        key::mark_here(key_file)?;
        Ok(Self::new(database, key_file))
    }

    /// For the service, which alone has its credential. All secrets that are there must open with it.
    pub(crate) fn with_credential(
        database: Database,
        credential: &Path,
        key_file: &Path,
    ) -> Result<Self, StoreError> {
        key::credential(credential)?;
        let secrets = Self { database, key: Key::Credential(credential.to_owned()), by: None };
        for SecretName { name, .. } in secrets.list()? {
            drop(secrets.get(&name)?);
        }
        // Who has no credential must not seal with another key.
        key::mark_elsewhere(key_file)?;
        Ok(secrets)
    }

    /// Each change leaves a note for the audit log.
    #[must_use]
    pub fn by(self, principal: impl Into<String>) -> Self {
        Self { by: Some(principal.into()), ..self }
    }

    pub fn set(&self, name: &str, value: &SecretSlice<u8>) -> Result<(), StoreError> {
        check_name(name)?;
        let length = value.expose_secret().len();
        if length == 0 {
            return Err(StoreError::Invalid { field: "secret", rule: "its value must not be empty" });
        }
        if length > VALUE_LIMIT {
            return Err(StoreError::TooLong { field: "secret", length, limit: VALUE_LIMIT });
        }
        let cipher = self.cipher_to_seal()?;
        let nonce = *random::<24>()?;
        let aad = bound_to(name);
        let payload = Payload { msg: value.expose_secret(), aad: &aad };
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed =
            sealed.map_err(|_| StoreError::Invalid { field: "secret", rule: "it can't be sealed" })?;
        let (name, by) = (name.to_owned(), self.by.clone());
        self.database.write("record a secret", move |connection| {
            let upsert = "INSERT INTO secrets (name, nonce, sealed, created_ms, updated_ms)
                VALUES (?1, ?2, ?3, ?4, ?4)
                ON CONFLICT (name) DO UPDATE SET nonce = ?2, sealed = ?3, updated_ms = ?4";
            let done = connection.execute(upsert, params![name, nonce, sealed, clock::now_ms()]);
            done.map_err(|error| StoreError::sqlite("record a secret", error))?;
            left(connection, by.as_deref(), "set secret", &name)
        })
    }

    /// For a hand-out that was decided on and is on record.
    pub fn get(&self, name: &str) -> Result<Option<SecretSlice<u8>>, StoreError> {
        let row = self.database.read("read a secret", |reader| {
            let mut find = reader.prepare_cached("SELECT nonce, sealed FROM secrets WHERE name = ?1")?;
            find.query_row([name], |row| Ok((row.get::<_, [u8; 24]>(0)?, row.get::<_, Vec<u8>>(1)?)))
                .optional()
        })?;
        let Some((nonce, sealed)) = row else { return Ok(None) };
        let key = match &self.key {
            Key::Credential(path) => key::credential(path)?,
            Key::File(path) => {
                let missing = || StoreError::KeyMissing { path: path.clone() };
                key::read(path)?.ok_or_else(missing)?
            }
        };
        let cipher = cipher(&key);
        let payload = Payload { msg: &sealed, aad: &bound_to(name) };
        let value = cipher.decrypt(&XNonce::from(nonce), payload);
        let value = value.map_err(|_| StoreError::Undecryptable { name: name.to_owned() })?;
        // The buffer is larger than the value: a copy of exactly its size is not moved again, and this one is wiped.
        let value = Zeroizing::new(value);
        Ok(Some(SecretSlice::from(value.to_vec())))
    }

    pub fn list(&self) -> Result<Vec<SecretName>, StoreError> {
        self.database.read("list secrets", |reader| {
            let mut select = reader.prepare_cached(
                "SELECT name, created_ms, updated_ms FROM secrets ORDER BY name LIMIT 10000",
            )?;
            let rows = select.query_map([], |row| {
                Ok(SecretName { name: row.get(0)?, created_ms: row.get(1)?, updated_ms: row.get(2)? })
            })?;
            rows.collect()
        })
    }

    /// False if there was none.
    pub fn remove(&self, name: &str) -> Result<bool, StoreError> {
        let (name, by) = (name.to_owned(), self.by.clone());
        self.database.write("remove a secret", move |connection| {
            let removed = connection.execute("DELETE FROM secrets WHERE name = ?1", [&name]);
            let removed = removed.map_err(|error| StoreError::sqlite("remove a secret", error))? > 0;
            left(connection, by.as_deref().filter(|_| removed), "remove secret", &name)?;
            Ok(removed)
        })
    }

    /// Makes the key if nothing was ever sealed. A key that is gone is not replaced: what it sealed would be lost
    /// without anyone noticing.
    fn cipher_to_seal(&self) -> Result<XChaCha20Poly1305, StoreError> {
        let path = match &self.key {
            Key::Credential(path) => return Ok(cipher(&key::credential(path)?)),
            Key::File(path) => path,
        };
        key::check_not_elsewhere(path)?;
        if let Some(bytes) = key::read(path)? {
            return Ok(cipher(&bytes));
        }
        if !self.list()?.is_empty() {
            return Err(StoreError::KeyMissing { path: path.clone() });
        }
        Ok(cipher(&key::make(path)?))
    }
}

fn left(connection: &Connection, by: Option<&str>, event: &str, name: &str) -> Result<(), StoreError> {
    unlogged::leave(connection, by, json!({ "event": event, "name": name }))
}

/// Whether a systemd credential can be the key.
pub fn check_credential(path: &Path) -> Result<(), StoreError> {
    key::credential(path).map(drop)
}

fn cipher(key: &key::Bytes) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new((&**key).into())
}

fn bound_to(name: &str) -> Vec<u8> {
    [CONTEXT, name.as_bytes()].concat()
}

/// As an environment variable is named: that is what most become.
fn check_name(name: &str) -> Result<(), StoreError> {
    within("secret's name", name, NAME_LIMIT)?;
    let word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if name.is_empty() || !word || name.as_bytes()[0].is_ascii_digit() {
        let rule = "letters, digits and _ only, and no digit first";
        return Err(StoreError::Invalid { field: "secret's name", rule });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
