-- Format 3 of Flux's database: what memories deliver, and the planner's evidence.
-- Tables and triggers of this file are also made beside an older database that cannot be written.

-- Bandwidth profiles of a machine; the newest counts.
CREATE TABLE bandwidths (
  id          INTEGER PRIMARY KEY,
  fingerprint TEXT NOT NULL REFERENCES fingerprints (hash),
  measured_at INTEGER NOT NULL,
  document    TEXT NOT NULL CHECK (json_valid(document)) -- every repetition of every path
) STRICT;
CREATE INDEX bandwidths_by_fingerprint ON bandwidths (fingerprint);
CREATE TRIGGER bandwidths_stay BEFORE UPDATE ON bandwidths BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;

-- Placements predicted or measured; one that was only planned belongs to no session. No Flux wrote into format 1's table.
DROP TABLE placements;
CREATE TABLE placements (
  id           INTEGER PRIMARY KEY,
  session      INTEGER REFERENCES sessions (id),
  at           INTEGER NOT NULL,
  fingerprint  TEXT NOT NULL REFERENCES fingerprints (hash),
  model_digest TEXT NOT NULL,
  document     TEXT NOT NULL CHECK (json_valid(document)) -- the candidate, its prediction, its measurement or null
) STRICT;
CREATE INDEX placements_by_fingerprint ON placements (fingerprint, model_digest);
CREATE TRIGGER placements_stay BEFORE UPDATE ON placements BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;

-- Fits of the speed model are in format 1's table: constants, residuals, history of errors.
CREATE INDEX fits_by_fingerprint ON fits (fingerprint);
