# What users get: the program, and the library that the Python package loads.

# setup/wheel.sh packs what a checkout has built, and compiles nothing a second time.
set(KW_PREBUILT "" CACHE PATH "A folder with kw and libkernelwright.so, to install these instead of compiling")
if(KW_PREBUILT)
  add_custom_target(product)
  install(PROGRAMS ${KW_PREBUILT}/kw DESTINATION kernelwright/bin COMPONENT kernelwright)
  install(FILES ${KW_PREBUILT}/libkernelwright.so DESTINATION kernelwright/lib COMPONENT kernelwright)
  return()
endif()

# -static needs the C library as an archive, and the sanitizers forbid it.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LINK_OPTIONS -static)
check_cxx_source_compiles("int main() { return 0; }" KW_CAN_LINK_STATICALLY)
unset(CMAKE_REQUIRED_LINK_OPTIONS)
if(KW_STATIC AND KW_CAN_LINK_STATICALLY AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  target_link_options(kw PRIVATE -static)
else()
  target_link_options(kw PRIVATE -static-libstdc++ -static-libgcc)
endif()
set_target_properties(kw PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

add_custom_target(product DEPENDS kw)
install(TARGETS kw RUNTIME DESTINATION kernelwright/bin COMPONENT kernelwright)

if(TARGET kw_capi)
  set_target_properties(kw_capi PROPERTIES OUTPUT_NAME kernelwright LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  # Old enough for manylinux_2_34: libgcc's archive asks for glibc 2.35, and an unused part of libstdc++'s for 2.36.
  target_link_options(kw_capi PRIVATE -static-libstdc++ -Wl,--exclude-libs,ALL -Wl,--gc-sections)
  add_dependencies(product kw_capi)
  install(TARGETS kw_capi LIBRARY DESTINATION kernelwright/lib COMPONENT kernelwright)
endif()
