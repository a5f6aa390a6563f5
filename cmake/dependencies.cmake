# What the C++ side takes from the system; docs/dependencies.md says why.
find_package(nlohmann_json 3.10 REQUIRED)
find_package(Threads REQUIRED)

# Header-only under both of its names: Debian has fmt as a shared library only, which a static program cannot take.
find_path(KW_FMT_INCLUDE fmt/format.h REQUIRED)
foreach(name fmt::fmt fmt::fmt-header-only)
  add_library(${name} INTERFACE IMPORTED)
  set_target_properties(${name} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${KW_FMT_INCLUDE}"
                                           INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
endforeach()

# CLI11's own configuration differs between distributions in how it names its target.
find_path(KW_CLI11_INCLUDE CLI/CLI.hpp REQUIRED)
if(NOT TARGET CLI11::CLI11)
  add_library(CLI11::CLI11 INTERFACE IMPORTED)
  set_target_properties(CLI11::CLI11 PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${KW_CLI11_INCLUDE}"
                                                INTERFACE_INCLUDE_DIRECTORIES "${KW_CLI11_INCLUDE}")
endif()

# The archive where there is one, so that the binary can be carried to a machine without SQLite.
find_path(KW_SQLITE_INCLUDE sqlite3.h REQUIRED)
find_library(KW_SQLITE_LIBRARY NAMES libsqlite3.a sqlite3 REQUIRED)
add_library(SQLite::SQLite3 UNKNOWN IMPORTED)
set_target_properties(SQLite::SQLite3 PROPERTIES
  IMPORTED_LOCATION "${KW_SQLITE_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${KW_SQLITE_INCLUDE}"
  INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};m")

# Archives again. What libedit itself stands on (terminfo; on Debian also libbsd and libmd) is named by no header.
find_path(KW_EDIT_INCLUDE histedit.h REQUIRED)
find_library(KW_EDIT_LIBRARY NAMES libedit.a edit REQUIRED)
set(KW_EDIT_NEEDS "")
foreach(name tinfo bsd md)
  find_library(KW_EDIT_${name} NAMES lib${name}.a ${name})
  if(KW_EDIT_${name})
    list(APPEND KW_EDIT_NEEDS "${KW_EDIT_${name}}")
  endif()
endforeach()
add_library(Editline::Editline UNKNOWN IMPORTED)
set_target_properties(Editline::Editline PROPERTIES
  IMPORTED_LOCATION "${KW_EDIT_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${KW_EDIT_INCLUDE}"
  INTERFACE_LINK_LIBRARIES "${KW_EDIT_NEEDS}")
