//! `stockade`.

#![no_main]

stockade_sys::entry!(stockade_cli::stockade);
