-- Format 6 of Flux's database: profiles that came from elsewhere.
-- Tables and triggers of this file are also made beside an older database that cannot be written.

-- As they came; arguments and variables are made from the search space of this Flux when one is used.
CREATE TABLE imports (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  imported_at  INTEGER NOT NULL,
  model_digest TEXT NOT NULL,
  document     TEXT NOT NULL CHECK (json_valid(document))
) STRICT;
CREATE INDEX imports_by_model ON imports (model_digest);
CREATE TRIGGER imports_stay BEFORE UPDATE ON imports BEGIN SELECT RAISE(ABORT, 'evidence is never changed'); END;
