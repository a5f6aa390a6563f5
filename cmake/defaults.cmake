# How everything is compiled.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# The same objects go into kw and into libkernelwright.so.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Assertions stay on: they are how our own faults are told from the user's.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

find_program(KW_CCACHE ccache)
if(KW_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${KW_CCACHE})
  # Under pip nobody sets what setup/build.sh does: relative paths, so that what the checkout compiled is found.
  if(SKBUILD)
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${KW_CCACHE})
  endif()
endif()

# A whole build takes a third of the time, a change of one file longer: for users and wheels, not for who works on the compiler.
option(KW_UNITY "Compile the files of a folder together, up to 16 at a time" OFF)
if(KW_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
endif()
