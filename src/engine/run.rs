//! `flux run`: the stored profile applied to llama-server.
