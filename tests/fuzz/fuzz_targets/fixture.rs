#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flux_fuzz::fixture(data));
