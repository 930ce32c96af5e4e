-- Format 5 of Flux's database: readings of sensors, packed.
-- Tables and triggers of this file are also made beside an older database that cannot be written.
-- Readings still arrive as rows of format 1's `telemetry`, every two seconds, so that a killed Flux loses no more. Eight
-- readings a series are too few for a block: rows move into blocks, value for value, when their stretch of 128 s has
-- passed or their session ends. Blocks and rows together are what was read.

CREATE TABLE telemetry_series (
  id     INTEGER PRIMARY KEY,
  source TEXT NOT NULL,
  key    TEXT NOT NULL,
  UNIQUE (source, key)
) STRICT;

-- A series over one stretch of 128 s of a session; in numbers, so that wide windows need not be unpacked.
CREATE TABLE telemetry_blocks (
  id       INTEGER PRIMARY KEY,
  session  INTEGER NOT NULL REFERENCES sessions (id),
  series   INTEGER NOT NULL REFERENCES telemetry_series (id),
  from_at  INTEGER NOT NULL, -- first reading
  to_at    INTEGER NOT NULL, -- last reading
  readings INTEGER NOT NULL,
  lowest   REAL NOT NULL,
  highest  REAL NOT NULL,
  total    REAL NOT NULL, -- sum of the values
  latest   REAL NOT NULL, -- value of the last reading
  parts    BLOB NOT NULL  -- lowest and highest of every 4 s
) STRICT;
-- All that wide windows need: they read no block's row.
CREATE INDEX telemetry_blocks_in_brief ON telemetry_blocks (session, from_at, series, to_at, readings, lowest, highest, total, latest);

-- Every time and value of a block; apart, so that looking through blocks does not read them.
CREATE TABLE telemetry_data (
  block  INTEGER PRIMARY KEY REFERENCES telemetry_blocks (id) ON DELETE CASCADE,
  packed BLOB NOT NULL
) STRICT;

CREATE TRIGGER telemetry_series_stay BEFORE UPDATE ON telemetry_series BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER telemetry_blocks_stay BEFORE UPDATE ON telemetry_blocks BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
CREATE TRIGGER telemetry_data_stay BEFORE UPDATE ON telemetry_data BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
