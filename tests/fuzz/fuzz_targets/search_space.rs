#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| flux_fuzz::search_space(data));
