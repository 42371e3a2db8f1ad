# Each box of the design is an object library with its own include paths; libgradwire is all of them together.
#
#   gradwire_module(NAME SOURCES … [USES module …])
#
# USES names the modules whose private headers ("compressors/…") may be seen; the arrows of docs/design.md §2 are checked
# here, so that a new arrow is a change of this list and nothing else.
set(GRADWIRE_ARROWS_core "")
set(GRADWIRE_ARROWS_compressors core)
set(GRADWIRE_ARROWS_comm core)
set(GRADWIRE_ARROWS_reductions core compressors comm)
set(GRADWIRE_ARROWS_overlap core compressors comm reductions)

function(gradwire_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  foreach(used IN LISTS ARG_USES)
    if(NOT used IN_LIST GRADWIRE_ARROWS_${name})
      message(FATAL_ERROR "module ${name} must not use ${used}: the arrows are ${GRADWIRE_ARROWS_${name}}")
    endif()
  endforeach()
  set(target gradwire_${name})
  add_library(${target} OBJECT ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE gradwire_flags)
  gradwire_unite(${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  # Private headers are included as "core/…", "compressors/…": a module sees a view of the tree that holds only what it
  # may use, made of links.
  set(view ${PROJECT_BINARY_DIR}/views/${name})
  file(MAKE_DIRECTORY ${view})
  foreach(seen IN ITEMS ${name} ${ARG_USES})
    gradwire_module_folder(${seen} folder)
    get_filename_component(parent ${folder} DIRECTORY)
    if(parent)
      file(MAKE_DIRECTORY ${view}/${parent})
    endif()
    if(NOT EXISTS ${view}/${folder})
      file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${view}/${folder} SYMBOLIC)
    endif()
  endforeach()
  target_include_directories(${target} PRIVATE ${view})
  set_property(GLOBAL APPEND PROPERTY GRADWIRE_MODULES ${target})
endfunction()

# A folder is one translation unit: a file by itself takes five seconds, four of them for the headers that it shares with
# its neighbours. Files that Highway compiles once a target stay by themselves, and so do methods, which use the same names.
function(gradwire_unite target)
  if(DEFINED CMAKE_UNITY_BUILD)  # analysers want to see the files one by one
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "/fast\\.cpp$|/methods/")
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} ABSOLUTE)
    get_filename_component(folder ${folder} DIRECTORY)
    string(MAKE_C_IDENTIFIER "${folder}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

function(gradwire_module_folder name result)
  if(name STREQUAL "reductions")
    set(${result} comm/reductions PARENT_SCOPE)
  else()
    set(${result} ${name} PARENT_SCOPE)
  endif()
endfunction()
