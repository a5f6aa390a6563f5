# kw_warnings(TARGET): all warnings, as errors; for our own code only.
function(kw_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror)
endfunction()

# kw_library(NAME SOURCES a.cpp b.cpp LINKS kw_support …): a static library of one folder of src/.
function(kw_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${arg_LINKS})
  kw_warnings(${name})
endfunction()
