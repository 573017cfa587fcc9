module unbroken ! the contract (docs/contract.md) for Fortran 2008: compile this file before your program
  use iso_c_binding, only: c_char, c_int, c_null_char
  implicit none
  private
  public :: told, must_stop, must_save, draft, commit
  character(4096) :: ready = "" ! the state that was handed over last
  interface
    integer(c_int) function mkdir(path, mode) bind(c)
      import
      character(c_char), intent(in) :: path(*)
      integer(c_int), value :: mode
    end function
    integer(c_int) function rename(from, to) bind(c)
      import
      character(c_char), intent(in) :: from(*), to(*)
    end function
  end interface
contains
  function told(name) result(text) ! a variable, "" if it is not set; told("RESUME") is the folder to resume from
    character(*), intent(in) :: name
    character(:), allocatable :: text
    character(4000) :: value
    call get_environment_variable("UNBROKEN_" // name, value)
    text = trim(value)
  end function
  logical function must_stop() ! .true. if the program should save and stop with 85
    inquire (file=told("STOP"), exist=must_stop)
  end function
  logical function must_save(is_last) ! the last one always, others once the one before is taken; none without unbroken
    logical, intent(in) :: is_last
    integer(8), save :: saved_at = -1
    integer(8) :: now, per_second
    character(40) :: seconds
    real :: every
    logical :: is_waiting
    call system_clock(now, per_second)
    if (saved_at < 0) saved_at = now
    seconds = told("SAVE_SECONDS") // " 60"
    read (seconds, *) every
    inquire (file=trim(ready) // "/progress.json", exist=is_waiting)
    must_save = is_last .or. (now - saved_at >= int(every * per_second, 8) .and. .not. is_waiting)
    must_save = must_save .and. told("SAVE") /= ""
    if (must_save) saved_at = now
  end function
  function draft() result(folder) ! a new folder to write the state into
    character(:), allocatable :: folder
    folder = told("SAVE") // "/draft"
    if (mkdir(folder // c_null_char, 511_c_int) /= 0) error stop "unbroken: no new folder for the state"
  end function
  subroutine commit(done, goal) ! hands the folder over; `done` must be more than in the state before
    integer(8), intent(in) :: done, goal
    character(:), allocatable :: folder
    integer :: file
    folder = told("SAVE") // "/draft"
    open (newunit=file, file=folder // "/progress.json", status="new", action="write")
    write (file, "(a, i0, a, i0, 3a)") '{"done": ', done, ', "goal": ', goal, ', "unit": "', told("GOAL_UNIT"), '"}'
    close (file)
    write (ready, "(2a, i20.20, a)") told("SAVE"), "/", done, ".ready"
    if (rename(folder // c_null_char, trim(ready) // c_null_char) /= 0) error stop "unbroken: no rename"
  end subroutine
end module
