//! The store over real files, real processes and real ends of them. Some tests start this very program again with
//! a part to play (`scene`), named in its environment.

#[cfg(test)]
mod audit;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod full;
#[cfg(test)]
mod locked;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod tampering;

/// Not a test by itself: the part that a test gives to another process.
#[test]
fn scene() {
    match std::env::var(stage::PART).as_deref() {
        Ok("records") => crash::records(&stage::directory()),
        Ok("locks") => locked::locks(&stage::directory()),
        Ok(other) => panic!("no part is called {other}"),
        Err(_) => {}
    }
}
