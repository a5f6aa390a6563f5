// The archive's tables, and what is checked when it is opened.
#pragma once

#include "archive/database.hpp"

namespace kw {

inline constexpr int kArchiveSchemaVersion = 2;

// Creates the tables in a new file; in an existing one checks that it is an archive, undamaged, and of a version we
// know; one of an earlier version gets the tables that came since. Throws kMissing with what to do.
void prepare_schema(Database& database);

}  // namespace kw
