-- Format 4 of Flux's database: what the sensors said around each run.
-- Tables and triggers of this file are also made beside an older database that cannot be written.

-- Sensors while repetitions were timed and before, and the energy of every repetition; by no means every run has them.
CREATE TABLE run_telemetry (
  run      INTEGER PRIMARY KEY REFERENCES runs (id),
  document TEXT NOT NULL CHECK (json_valid(document)),
  energy   TEXT NOT NULL CHECK (json_valid(energy)) -- by the position of the test, null where not known
) STRICT;
CREATE TRIGGER run_telemetry_stay BEFORE UPDATE ON run_telemetry BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
