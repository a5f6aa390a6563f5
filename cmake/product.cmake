# What users get: the program, and the library that the Python package loads.

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
  target_link_options(kw_capi PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL)
  add_dependencies(product kw_capi)
  install(TARGETS kw_capi LIBRARY DESTINATION kernelwright/lib COMPONENT kernelwright)
endif()
