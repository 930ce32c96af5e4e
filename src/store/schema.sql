-- Format 1 of Flux's database.
-- Times are milliseconds since the Unix epoch, UTC. Columns checked by json_valid hold one JSON document.
-- Rows are evidence: added, never changed. Ids that people quote are never used twice (AUTOINCREMENT).

-- What results are keyed to: SHA-256 of the fields' canonical text.
CREATE TABLE fingerprints (
  hash   TEXT NOT NULL PRIMARY KEY,
  fields TEXT NOT NULL CHECK (json_valid(fields)) -- [[name, value], …] in canonical order
) STRICT, WITHOUT ROWID;

-- The readings behind a fingerprint, as they were when a session began.
CREATE TABLE machines (
  id          INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL REFERENCES fingerprints (hash),
  document    TEXT NOT NULL CHECK (json_valid(document))
) STRICT;
CREATE INDEX machines_by_fingerprint ON machines (fingerprint);

-- llama.cpp builds measured. The digest is the identity; a build moved or renamed is a further row.
CREATE TABLE runtimes (
  id       INTEGER PRIMARY KEY,
  digest   TEXT NOT NULL,
  name     TEXT NOT NULL,
  document TEXT NOT NULL CHECK (json_valid(document))
) STRICT;
CREATE INDEX runtimes_by_digest ON runtimes (digest);

-- Models measured. The digest is the identity; a file moved or renamed is a further row.
CREATE TABLE models (
  id       INTEGER PRIMARY KEY,
  digest   TEXT NOT NULL,
  name     TEXT NOT NULL,
  document TEXT NOT NULL CHECK (json_valid(document))
) STRICT;
CREATE INDEX models_by_digest ON models (digest);

-- Remembered scans: the last one tells what changed.
CREATE TABLE scans (
  id          INTEGER PRIMARY KEY,
  at          INTEGER NOT NULL,
  fingerprint TEXT NOT NULL REFERENCES fingerprints (hash)
) STRICT;

CREATE TABLE sessions (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  kind         TEXT NOT NULL, -- tune, ab
  started_at   INTEGER NOT NULL,
  fingerprint  TEXT NOT NULL REFERENCES fingerprints (hash),
  machine      INTEGER NOT NULL REFERENCES machines (id),
  runtime      INTEGER NOT NULL REFERENCES runtimes (id),
  model        INTEGER NOT NULL REFERENCES models (id),
  goal         TEXT NOT NULL,
  config       TEXT NOT NULL CHECK (json_valid(config)), -- request and plan, enough to resume
  simulated    INTEGER NOT NULL CHECK (simulated IN (0, 1)),
  flux_version TEXT NOT NULL
) STRICT;

-- How sessions ended. A resumed session ends again, and the last end counts; none: running, or killed.
CREATE TABLE session_ends (
  id       INTEGER PRIMARY KEY,
  session  INTEGER NOT NULL REFERENCES sessions (id),
  ended_at INTEGER NOT NULL,
  state    TEXT NOT NULL, -- done, cancelled, failed
  verdict  TEXT,
  result   TEXT NOT NULL CHECK (json_valid(result))
) STRICT;
CREATE INDEX session_ends_by_session ON session_ends (session);

-- Settings measured or judged in a session: {dimension: value}, {} is stock.
CREATE TABLE arms (
  id       INTEGER PRIMARY KEY,
  session  INTEGER NOT NULL REFERENCES sessions (id),
  settings TEXT NOT NULL CHECK (json_valid(settings)),
  UNIQUE (session, settings)
) STRICT;

-- One row per process, with all it left behind.
CREATE TABLE runs (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  session        INTEGER NOT NULL REFERENCES sessions (id),
  seq            INTEGER NOT NULL, -- place in the session, from 0
  arm            INTEGER NOT NULL REFERENCES arms (id),
  planned        TEXT NOT NULL CHECK (json_valid(planned)),
  stage          TEXT GENERATED ALWAYS AS (json_extract(planned, '$.stage')) VIRTUAL,
  side           TEXT GENERATED ALWAYS AS (json_extract(planned, '$.side')) VIRTUAL,
  started_at     INTEGER NOT NULL,
  wall_secs      REAL NOT NULL,
  outcome        TEXT NOT NULL, -- valid, stopped-early, failed, cancelled
  outcome_detail TEXT CHECK (json_valid(outcome_detail)), -- why there are no samples; NULL when valid
  buffers        TEXT NOT NULL CHECK (json_valid(buffers)), -- bytes per device
  argv           TEXT NOT NULL CHECK (json_valid(argv)),
  env            TEXT NOT NULL CHECK (json_valid(env)), -- set by Flux
  stdout         TEXT NOT NULL,
  stderr         TEXT NOT NULL,
  exit_code      INTEGER,
  signal         INTEGER,
  UNIQUE (session, seq)
) STRICT;

-- The tests of a valid run, in order, each with the record llama-bench printed.
CREATE TABLE run_tests (
  run      INTEGER NOT NULL REFERENCES runs (id),
  position INTEGER NOT NULL, -- from 0
  test     TEXT NOT NULL, -- llama-bench's label: pp512, tg128 @ d4096
  n_prompt INTEGER NOT NULL,
  n_gen    INTEGER NOT NULL,
  n_depth  INTEGER NOT NULL,
  record   TEXT NOT NULL CHECK (json_valid(record)),
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

-- Every repetition of every test.
CREATE TABLE samples (
  run        INTEGER NOT NULL,
  position   INTEGER NOT NULL,
  repetition INTEGER NOT NULL, -- from 0
  ns         INTEGER NOT NULL,
  PRIMARY KEY (run, position, repetition),
  FOREIGN KEY (run, position) REFERENCES run_tests (run, position)
) STRICT, WITHOUT ROWID;

-- Samples as people read them; the rate is tokens per second.
CREATE VIEW sample_rates AS
SELECT r.session, r.seq, r.stage, r.side, a.settings, t.test, s.repetition, s.ns,
       (t.n_prompt + t.n_gen) * 1e9 / s.ns AS rate
FROM samples s
JOIN run_tests t ON t.run = s.run AND t.position = s.position
JOIN runs r ON r.id = s.run
JOIN arms a ON a.id = r.arm;

-- Judgements of an arm against its baseline.
CREATE TABLE verdicts (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  session INTEGER NOT NULL REFERENCES sessions (id),
  arm     INTEGER NOT NULL REFERENCES arms (id),
  verdict TEXT NOT NULL,
  detail  TEXT NOT NULL CHECK (json_valid(detail))
) STRICT;
CREATE INDEX verdicts_by_session ON verdicts (session);

-- Confirmed winners.
CREATE TABLE profiles (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  session        INTEGER NOT NULL REFERENCES sessions (id),
  fingerprint    TEXT NOT NULL REFERENCES fingerprints (hash),
  runtime_digest TEXT NOT NULL,
  model_digest   TEXT NOT NULL,
  goal           TEXT NOT NULL,
  bench          TEXT NOT NULL CHECK (json_valid(bench)), -- {args, env} for llama-bench
  server         TEXT NOT NULL CHECK (json_valid(server)), -- {args, env} for llama-server
  created_at     INTEGER NOT NULL,
  simulated      INTEGER NOT NULL CHECK (simulated IN (0, 1)),
  verdict        INTEGER NOT NULL REFERENCES verdicts (id) -- the confirmation
) STRICT;

-- A profile's settings, each with the run that introduced it.
CREATE TABLE profile_settings (
  profile       INTEGER NOT NULL REFERENCES profiles (id),
  dimension     TEXT NOT NULL,
  value         TEXT NOT NULL,
  introduced_by INTEGER NOT NULL REFERENCES runs (id),
  PRIMARY KEY (profile, dimension)
) STRICT, WITHOUT ROWID;

CREATE TABLE notices (
  id      INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (id),
  level   TEXT NOT NULL, -- info, warning
  code    TEXT NOT NULL,
  text    TEXT NOT NULL
) STRICT;
CREATE INDEX notices_by_session ON notices (session);

-- Readings taken while runs went on; `source` is the sensor's owner, `key` names the reading and its unit.
CREATE TABLE telemetry (
  id      INTEGER PRIMARY KEY,
  session INTEGER NOT NULL REFERENCES sessions (id),
  run     INTEGER REFERENCES runs (id),
  at      INTEGER NOT NULL,
  source  TEXT NOT NULL,
  key     TEXT NOT NULL,
  value   REAL NOT NULL
) STRICT;
CREATE INDEX telemetry_by_session ON telemetry (session, at);

-- Placements that were measured, and fits of the speed model.
CREATE TABLE placements (
  id       INTEGER PRIMARY KEY,
  session  INTEGER NOT NULL REFERENCES sessions (id),
  document TEXT NOT NULL CHECK (json_valid(document))
) STRICT;
CREATE TABLE fits (
  id          INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL REFERENCES fingerprints (hash),
  created_at  INTEGER NOT NULL,
  document    TEXT NOT NULL CHECK (json_valid(document))
) STRICT;

CREATE TRIGGER fingerprints_stay BEFORE UPDATE ON fingerprints BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER machines_stay BEFORE UPDATE ON machines BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER runtimes_stay BEFORE UPDATE ON runtimes BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER models_stay BEFORE UPDATE ON models BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER scans_stay BEFORE UPDATE ON scans BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER sessions_stay BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER session_ends_stay BEFORE UPDATE ON session_ends BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER arms_stay BEFORE UPDATE ON arms BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER runs_stay BEFORE UPDATE ON runs BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER run_tests_stay BEFORE UPDATE ON run_tests BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER samples_stay BEFORE UPDATE ON samples BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER verdicts_stay BEFORE UPDATE ON verdicts BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER profiles_stay BEFORE UPDATE ON profiles BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER profile_settings_stay BEFORE UPDATE ON profile_settings BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER notices_stay BEFORE UPDATE ON notices BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER telemetry_stay BEFORE UPDATE ON telemetry BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER placements_stay BEFORE UPDATE ON placements BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER fits_stay BEFORE UPDATE ON fits BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
