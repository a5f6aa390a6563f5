# Errors only with the compilers that the code was tried with: what a newer one warns about must not stop a user's first build.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(kw_werror_default ON)
else()
  set(kw_werror_default OFF)
endif()
option(KW_WERROR "Take warnings in our own code as errors" ${kw_werror_default})

# kw_warnings(TARGET): all warnings; for our own code only.
function(kw_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${KW_WERROR}>:-Werror>)
endfunction()

# kw_library(NAME SOURCES a.cpp b.cpp LINKS kw_support …): a static library of one folder of src/.
function(kw_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINKS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${arg_LINKS})
  kw_warnings(${name})
endfunction()
