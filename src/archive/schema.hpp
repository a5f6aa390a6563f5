// The archive's tables, and what is checked when it is opened.
#pragma once

#include "archive/database.hpp"

namespace kw {

inline constexpr int kArchiveSchemaVersion = 1;

// Creates the tables in a new file; in an existing one checks that it is an archive, of a version we know, and undamaged.
// Throws kMissing with what to do.
void prepare_schema(Database& database);

}  // namespace kw
