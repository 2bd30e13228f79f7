//! `stockade`. For `run` a seed of the sandbox is started before anything else, and makes its namespaces while this program
//! begins (docs/design/0010).

#![no_main]

stockade_sys::entry!(stockade_cli::stockade, ahead: stockade_cli::SEED);
