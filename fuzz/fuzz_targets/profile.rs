#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stockade_fuzz_tests::check("profile", bytes));
