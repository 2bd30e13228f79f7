use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

struct Room {
    directory: tempfile::TempDir,
    secrets: Secrets,
}

fn room() -> Room {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(&directory.path().join("db")).unwrap();
    let secrets = Secrets::new(database, &directory.path().join("key"));
    Room { directory, secrets }
}

fn value(text: &str) -> SecretSlice<u8> {
    SecretSlice::from(text.as_bytes().to_vec())
}

impl Room {
    fn get(&self, name: &str) -> Option<String> {
        let value = self.secrets.get(name).unwrap()?;
        Some(String::from_utf8(value.expose_secret().to_vec()).unwrap())
    }
}

#[test]
fn a_secret_is_kept_sealed_and_comes_back() {
    let room = room();
    assert_eq!(room.get("TOKEN"), None);
    room.secrets.set("TOKEN", &value("first-value-of-it")).unwrap();
    room.secrets.set("TOKEN", &value("second-value-of-it")).unwrap();
    room.secrets.set("OTHER", &value("x")).unwrap();
    assert_eq!(room.get("TOKEN").as_deref(), Some("second-value-of-it"));
    let names: Vec<String> = room.secrets.list().unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["OTHER", "TOKEN"]);
    let key = room.directory.path().join("key").metadata().unwrap();
    assert_eq!((key.permissions().mode() & 0o777, key.len()), (0o600, 32));
    let files: Vec<_> =
        fs::read_dir(room.directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "db, its two and the key: {files:?}");
    for file in files {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(8).any(|window| window == b"-value-o"), "{} shows it", file.display());
    }
    assert!(room.secrets.remove("TOKEN").unwrap());
    assert!(!room.secrets.remove("TOKEN").unwrap());
    assert_eq!(room.get("TOKEN"), None);
}

#[test]
fn a_value_is_bound_to_its_name_and_its_key() {
    let room = room();
    room.secrets.set("A", &value("of a")).unwrap();
    room.secrets.set("B", &value("of b")).unwrap();
    room.secrets
        .database
        .write("swap", |connection| {
            let swap =
                "UPDATE secrets SET (nonce, sealed) = (SELECT nonce, sealed FROM secrets WHERE name = 'B')";
            connection.execute(swap, []).map(drop).map_err(|error| StoreError::sqlite("swap", error))
        })
        .unwrap();
    assert_eq!(room.get("B").as_deref(), Some("of b"));
    assert!(matches!(room.secrets.get("A"), Err(StoreError::Undecryptable { .. })));
    let path = room.directory.path().join("key");
    fs::write(&path, [7; 32]).unwrap();
    assert!(matches!(room.secrets.get("B"), Err(StoreError::Undecryptable { .. })));
    fs::remove_file(&path).unwrap();
    assert!(matches!(room.secrets.get("B"), Err(StoreError::KeyMissing { .. })));
    assert!(matches!(room.secrets.set("C", &value("c")), Err(StoreError::KeyMissing { .. })));
}

#[test]
fn a_key_that_others_could_have_read_is_refused() {
    let room = room();
    let path = room.directory.path().join("key");
    let refused = |what: &str| match room.secrets.set("A", &value("a")) {
        Err(StoreError::KeyUnsafe { what: found, .. }) => assert_eq!(found, what),
        other => panic!("{what}: {other:?}"),
    };
    fs::write(&path, [7; 32]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    refused("open to others");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, [7; 31]).unwrap();
    refused("not 32 bytes long");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(matches!(room.secrets.set("A", &value("a")), Err(StoreError::Key { .. })));
}

#[test]
fn a_credential_is_the_services_key_and_nobody_else_seals_beside_it() {
    let room = room();
    let (file, credential) = (room.directory.path().join("key"), room.directory.path().join("given"));
    let with = || Secrets::with_credential(room.secrets.database.clone(), &credential, &file);
    let refused = |what: &str| match with() {
        Err(StoreError::Credential { what: found, .. }) => assert_eq!(found, what),
        other => panic!("{what}: {other:?}"),
    };
    refused("gone");
    fs::write(&credential, [7; 31]).unwrap();
    refused("open to others");
    // As systemd gives it to another user than root: by an access list.
    fs::set_permissions(&credential, fs::Permissions::from_mode(0o440)).unwrap();
    refused("not 32 bytes long");
    fs::set_permissions(&credential, fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(&credential, [7; 32]).unwrap();
    assert!(!room.directory.path().join("key.credential").exists(), "nothing was changed");
    let service = with().unwrap();
    service.set("TOKEN", &value("a-value-of-it")).unwrap();
    assert!(service.get("TOKEN").unwrap().is_some() && !file.exists());
    // At the command line there is no credential.
    assert!(matches!(room.secrets.set("OTHER", &value("x")), Err(StoreError::KeyElsewhere { .. })));
    assert!(room.secrets.get("TOKEN").is_err() && room.secrets.list().unwrap().len() == 1);
    fs::write(&credential, [8; 32]).unwrap();
    assert!(matches!(with(), Err(StoreError::Undecryptable { .. })), "it is another key");
    // The same bytes in the file, and no credential any more.
    fs::write(&file, [7; 32]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let service = Secrets::with_file(room.secrets.database.clone(), &file).unwrap();
    assert!(service.get("TOKEN").unwrap().is_some());
    room.secrets.set("OTHER", &value("x")).unwrap();
}

#[test]
fn names_and_values_have_bounds() {
    let room = room();
    for name in ["", "1A", "A B", "A-B", "é", &"A".repeat(129)] {
        assert!(room.secrets.set(name, &value("a")).is_err(), "{name}");
    }
    assert!(room.secrets.set("A", &value("")).is_err());
    assert!(room.secrets.set("A", &value(&"x".repeat(VALUE_LIMIT + 1))).is_err());
    assert!(!room.directory.path().join("key").exists());
}
