# What the C++ side takes from the system; docs/dependencies.md says why.
find_package(nlohmann_json 3.10 REQUIRED)
find_package(Threads REQUIRED)

# Debian has fmt as a shared library only, which a static program cannot take: its functions are compiled here, or, where
# fmt/functions.cpp does not suit its version, in each file that formats.
find_path(KW_FMT_INCLUDE fmt/format.h REQUIRED)
try_compile(KW_FMT_COMPILED ${PROJECT_BINARY_DIR}/fmt
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/fmt/functions.cpp ${CMAKE_CURRENT_LIST_DIR}/fmt/check.cpp
  CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${KW_FMT_INCLUDE}"
  CXX_STANDARD 20)
if(KW_FMT_COMPILED)
  add_library(kw_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt/functions.cpp)
  target_include_directories(kw_fmt SYSTEM PUBLIC ${KW_FMT_INCLUDE})
else()
  add_library(kw_fmt INTERFACE)
  target_include_directories(kw_fmt SYSTEM INTERFACE ${KW_FMT_INCLUDE})
  target_compile_definitions(kw_fmt INTERFACE FMT_HEADER_ONLY=1)
endif()

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
