# kw_library(NAME SOURCES a.cpp b.cpp LINKS kw_support …): a static library of one folder of src/, warnings as errors.
function(kw_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
  target_link_libraries(${name} PUBLIC ${arg_LINKS})
endfunction()
