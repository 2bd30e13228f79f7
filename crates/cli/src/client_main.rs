//! `stockade-client`: what `stockade` becomes for the verbs that talk to the service or open its records.

#![no_main]

stockade_sys::entry!(stockade_cli::client);
